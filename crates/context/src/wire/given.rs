//! Parses client data that has no fixed schema: message parts and skills.

use crate::{
    error::{ApiError, Result},
    sessions::{
        Part,
        message::{ContextPart, ToolPart},
    },
    store::skills::{Parameter, SkillData},
};
use serde_json::{Map, Value};

fn text(map: &Map<String, Value>, key: &str) -> String {
    map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Parses a message part.
pub(crate) fn part(given: &Value) -> Result<Part> {
    let bad = |why: &str| Err(ApiError::argument(format!("Invalid message part: {why}")));
    let Some(map) = given.as_object() else { return bad("each part is an object") };
    match map.get("type").and_then(Value::as_str).unwrap_or("text") {
        "text" => Ok(Part::text(text(map, "text"))),
        "context" => Ok(Part::Context(ContextPart {
            uri: text(map, "uri"),
            context_type: text(map, "context_type"),
            abstract_: text(map, "abstract"),
        })),
        "tool" => {
            let status = map.get("tool_status").and_then(Value::as_str).unwrap_or("completed");
            Ok(Part::Tool(Box::new(ToolPart {
                tool_id: text(map, "tool_id"),
                tool_name: text(map, "tool_name"),
                tool_uri: text(map, "tool_uri"),
                skill_uri: text(map, "skill_uri"),
                tool_status: status.to_owned(),
                tool_input: map.get("tool_input").cloned().unwrap_or_default(),
                tool_output: match map.get("tool_output") {
                    None | Some(Value::Null) => String::new(),
                    Some(Value::String(output)) => output.clone(),
                    Some(other) => other.to_string(),
                },
                ..ToolPart::default()
            })))
        }
        "image" => {
            let mut image = map.clone();
            image.shift_remove("type");
            Ok(Part::Image(image))
        }
        other => bad(&format!("type {other:?} is none of text, context, tool, image")),
    }
}

/// Parses a skill: the text of a SKILL.md, the fields of a skill, or an MCP tool, which has an `inputSchema`.
pub(crate) fn skill(given: &Value) -> Result<SkillData> {
    let map = match given {
        Value::String(text) => return Ok(SkillData::Text(text.clone())),
        Value::Object(map) => map,
        _ => return Err(ApiError::argument("Skill data must be SKILL.md content or an object")),
    };
    let (name, description) = (text(map, "name"), text(map, "description"));
    let Some(schema) = map.get("inputSchema") else {
        return Ok(SkillData::Described { name, description, content: text(map, "content") });
    };
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let parameters = properties.map(|(key, property)| Parameter {
        name: key.clone(),
        kind: property["type"].as_str().unwrap_or("any").to_owned(),
        required: required.contains(&key.as_str()),
        description: property["description"].as_str().map(str::to_owned),
    });
    Ok(SkillData::Tool { name, description, parameters: parameters.collect() })
}

/// The words of a list or of a comma-separated text; empty for anything else.
pub(crate) fn words(given: &Value) -> Vec<String> {
    match given {
        Value::String(text) => {
            text.split([',', ' ', '\n']).map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
        }
        Value::Array(all) => all.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mcp_tools_are_told_from_skills_by_their_schema() {
        let tool = json!({"name": "add", "description": "Adds", "inputSchema": {
            "properties": {"a": {"type": "number", "description": "first"}, "b": {}}, "required": ["a"]}});
        let SkillData::Tool { parameters, .. } = skill(&tool).unwrap() else { panic!("a tool") };
        assert_eq!((parameters[0].kind.as_str(), parameters[0].required), ("number", true));
        assert_eq!((parameters[1].kind.as_str(), parameters[1].required), ("any", false));
        let own = json!({"name": "add", "content": "# Add"});
        assert!(matches!(skill(&own), Ok(SkillData::Described { .. })));
        assert!(skill(&json!(7)).is_err());
    }

    #[test]
    fn parts_are_read_in_every_form_and_written_as_they_came() {
        let image = json!({"type": "image", "url": "x", "more": [1]});
        assert_eq!(serde_json::to_value(part(&image).unwrap()).unwrap(), image);
        let tool = part(&json!({"type": "tool", "tool_output": {"a": 1}})).unwrap();
        let Part::Tool(tool) = tool else { panic!("a tool") };
        assert_eq!((tool.tool_output.as_str(), tool.tool_status.as_str()), ("{\"a\":1}", "completed"));
        for bad in [json!("x"), json!({"type": "video"})] {
            assert!(part(&bad).is_err(), "{bad}");
        }
    }
}
