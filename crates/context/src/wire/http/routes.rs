//! The routes, top to bottom.

use super::{Answer, Ask, params::Params, traces, upload};
use crate::{
    error::{ApiError, Result},
    find::{
        scan::{self, Grep},
        search::{self, Find, Recall},
    },
    sessions,
    store::{
        fs::{self, Listing, Mode},
        memory::parse_time,
        resources::{self, NewResource, TagMode},
        skills,
        uri::Place,
    },
};
use http::{Method, StatusCode, header};
use serde_json::{Value, json};

/// The version of the interface that is spoken.
const VERSION: &str = "0.5.2";

/// Whether a request only asks if the interface is up: answered from memory.
pub(super) fn is_probe(request: &http::Request<bytes::Bytes>) -> bool {
    let path = request.uri().path();
    matches!(path.strip_prefix(super::PREFIX).unwrap_or(path), "/health" | "/ready")
}

pub(super) fn answer(ask: &Ask<'_>) -> Result<Answer> {
    let path: Vec<&str> = ask.path.iter().map(String::as_str).collect();
    let is = |method: Method| ask.method == method;
    match path.as_slice() {
        ["health"] => Ok(Answer::Plain(StatusCode::OK, health())),
        ["ready"] => Ok(Answer::Plain(
            StatusCode::OK,
            json!({"status": "ready", "checks": {
                "agfs": {"status": "ok", "checks": {"filesystem": "ok"}}, "vectordb": "ok",
                "api_key_manager": "not_configured", "embedding": "ok", "ollama": "not_configured",
            }}),
        )),
        ["api", "openviking", rest @ ..] => Ok(traces::answer(ask, rest)),
        ["api", "v1", rest @ ..] => match rest {
            ["system", "status"] if is(Method::GET) => {
                Ok(Answer::Full(json!({"initialized": true, "user": ask.who.user})))
            }
            ["system", "wait"] if is(Method::POST) => Ok(Answer::Full(fs::queue_status(0, 0))),
            ["fs", rest @ ..] => files(ask, rest),
            ["content", rest @ ..] => content(ask, rest),
            ["search", rest @ ..] => searches(ask, rest),
            ["resources"] if is(Method::POST) => add_resource(ask),
            ["resources", "temp_upload"] if is(Method::POST) => temp_upload(ask),
            ["skills"] if is(Method::POST) => add_skill(ask),
            ["skills", name] if is(Method::GET) || is(Method::DELETE) => skill(ask, name),
            ["skills"] if is(Method::GET) => Ok(Answer::Full(skills::list(&*ask.store.account(&ask.who)?, &ask.who)?)),
            ["sessions", rest @ ..] => super::sessions::answer(ask, rest),
            ["watches", rest @ ..] => watches(ask, rest),
            ["tasks"] if is(Method::GET) => {
                let mut query = Params::query(ask.query);
                let limit = query.integer("limit", 1).unwrap_or(50);
                query.finish()?;
                Ok(Answer::Full(ask.store.tasks.list(&owner(ask), usize_of(limit))))
            }
            ["tasks", id] if is(Method::GET) => Ok(Answer::Full(ask.store.tasks.get(id, &owner(ask))?)),
            _ => Err(no_route(ask)),
        },
        _ => Err(no_route(ask)),
    }
}

pub(crate) fn health() -> Value {
    json!({"status": "ok", "healthy": true, "version": VERSION, "auth_mode": "api_key"})
}

pub(super) fn no_route(ask: &Ask<'_>) -> ApiError {
    ApiError::none_such(format!("There is no route {} /{}", ask.method, ask.path.join("/")))
}

pub(crate) fn owner(ask: &Ask<'_>) -> String {
    format!("{}/{}", ask.who.account, ask.who.user)
}

pub(super) fn usize_of(n: i64) -> usize {
    usize::try_from(n).unwrap_or_default()
}

fn files(ask: &Ask<'_>, rest: &[&str]) -> Result<Answer> {
    let account = ask.store.account(&ask.who)?;
    let mut query = Params::query(ask.query);
    match (ask.method.as_str(), rest) {
        ("GET", ["ls" | "tree"]) => {
            let tree = rest == ["tree"];
            let uri = query.text("uri").unwrap_or_else(|| crate::store::uri::SCHEME.to_owned());
            let output = query.one_of("output", &["agent", "original"]).unwrap_or("agent");
            let limit = query.integer("limit", 1);
            let defaults = Listing::default();
            let how = Listing {
                recursive: tree || query.flag("recursive").unwrap_or_default(),
                simple: query.flag("simple").unwrap_or_default(),
                original: output == "original",
                abs_limit: query.integer("abs_limit", 0).map_or(defaults.abs_limit, usize_of),
                hidden: query.flag("show_all_hidden").unwrap_or_default(),
                node_limit: limit.or(query.integer("node_limit", 1)).map_or(defaults.node_limit, usize_of),
                offset: query.integer("offset", 0).map_or(0, usize_of),
                level_limit: query.integer("level_limit", 1).map_or(if tree { 3 } else { usize::MAX }, usize_of),
                rel_path: tree,
            };
            query.finish()?;
            let place = Place::parse(&uri, &ask.who)?;
            let (rows, more) = fs::list(&account, &ask.who, &place, &how)?;
            Ok(Answer::Listed(rows, more))
        }
        ("GET", ["stat"]) => {
            let uri = query.required("uri");
            query.finish()?;
            Ok(Answer::Full(fs::stat(&account, &Place::parse(&uri, &ask.who)?)?))
        }
        ("GET", ["attrs"]) => {
            let uri = query.required("uri");
            query.finish()?;
            let place = Place::parse(&uri, &ask.who)?;
            fs::stat(&account, &place)?;
            let tags = account.library.labels_of(&account, &place)?;
            Ok(Answer::Full(json!({"uri": place.to_string(), "attrs": {"tags": tags}})))
        }
        ("POST", ["attrs", "set_tags"]) => set_tags(ask),
        ("POST", ["cp"]) => {
            let mut body = Params::body(ask.body)?;
            let (from, to) = (body.required("from_uri"), body.required("to_uri"));
            let recursive = body.flag("recursive").unwrap_or_default();
            body.finish()?;
            let (from, to) = (Place::parse(&from, &ask.who)?, Place::parse(&to, &ask.who)?);
            Ok(Answer::Full(fs::cp(&account, &from, &to, recursive)?))
        }
        ("POST", ["mkdir"]) => {
            let mut body = Params::body(ask.body)?;
            let uri = body.required("uri");
            let about = body.text("description");
            body.finish()?;
            Ok(Answer::Full(fs::mkdir(&account, &Place::parse(&uri, &ask.who)?, about.as_deref())?))
        }
        ("POST", ["mv"]) => {
            let mut body = Params::body(ask.body)?;
            let (from, to) = (body.required("from_uri"), body.required("to_uri"));
            body.finish()?;
            Ok(Answer::Full(fs::mv(&account, &Place::parse(&from, &ask.who)?, &Place::parse(&to, &ask.who)?)?))
        }
        ("DELETE", []) => {
            let uri = query.required("uri");
            let recursive = query.flag("recursive").unwrap_or_default();
            query.finish()?;
            let place = Place::parse(&uri, &ask.who)?;
            if let ["user", _, "sessions", id] = place.names().iter().map(String::as_str).collect::<Vec<_>>().as_slice()
                && recursive
                && sessions::describe(&account, &ask.who, id).is_ok()
            {
                sessions::delete(&account, &ask.who, id)?;
                return Ok(Answer::Full(
                    json!({"uri": place.to_string(), "estimated_deleted_count": 1, "task_id": done(ask, "fs_delete", &uri)}),
                ));
            }
            let count = fs::remove(&account, &place, recursive)?;
            let task = done(ask, "fs_delete", &place.to_string());
            Ok(Answer::Full(json!({"uri": place.to_string(), "estimated_deleted_count": count, "task_id": task})))
        }
        _ => Err(no_route(ask)),
    }
}

/// A task that was over before its id was told.
fn done(ask: &Ask<'_>, kind: &'static str, resource: &str) -> String {
    let task = ask.store.tasks.begin(kind, resource, &owner(ask));
    ask.store.tasks.end(&task, crate::sessions::tasks::Ended::default());
    task
}

fn content(ask: &Ask<'_>, rest: &[&str]) -> Result<Answer> {
    let account = ask.store.account(&ask.who)?;
    let mut query = Params::query(ask.query);
    match (ask.method.as_str(), rest) {
        ("GET", ["read"]) => {
            let uri = query.required("uri");
            let offset = query.integer("offset", 0).unwrap_or_default();
            let limit = query.integer("limit", -1).unwrap_or(-1);
            query.finish()?;
            let text = fs::read(&account, &Place::parse(&uri, &ask.who)?)?;
            Ok(Answer::Full(fs::lines(&text, usize_of(offset), limit).into()))
        }
        ("GET", ["download"]) => {
            let uri = query.required("uri");
            query.finish()?;
            Ok(Answer::File(fs::read(&account, &Place::parse(&uri, &ask.who)?)?))
        }
        ("POST", ["set_tags"]) => set_tags(ask),
        ("GET", ["abstract" | "overview"]) => {
            let uri = query.required("uri");
            query.finish()?;
            let (abstract_, overview) = fs::described(&account, &Place::parse(&uri, &ask.who)?)?;
            Ok(Answer::Full(if rest == ["abstract"] { abstract_ } else { overview }.into()))
        }
        ("POST", ["write"]) => {
            let mut body = Params::body(ask.body)?;
            let uri = body.required("uri");
            let text = body.required("content");
            let mode = body.one_of("mode", &["replace", "append", "create"]).unwrap_or("replace");
            body.accept(&["wait", "timeout", "telemetry", "regenerate_semantics", "revectorize"]);
            body.finish()?;
            let mode = match mode {
                "append" => Mode::Append,
                "create" => Mode::Create,
                _ => Mode::Replace,
            };
            Ok(Answer::Short(fs::write(&account, &Place::parse(&uri, &ask.who)?, &text, mode)?))
        }
        _ => Err(no_route(ask)),
    }
}

fn read_find(body: &mut Params) -> Find {
    Find {
        query: body.text("query").unwrap_or_default(),
        targets: body.texts("target_uri").unwrap_or_default().into_iter().filter(|uri| !uri.is_empty()).collect(),
        context_types: body.texts("context_type").unwrap_or_default(),
        limit: body.integer("limit", 1).or(body.integer("node_limit", 1)).map_or(10, usize_of),
        threshold: body.number("score_threshold").unwrap_or_default(),
        levels: match body.any("level") {
            Some(Value::Array(all)) => {
                all.iter().filter_map(Value::as_u64).filter_map(|n| u8::try_from(n).ok()).collect()
            }
            Some(Value::Number(n)) => n.as_u64().and_then(|n| u8::try_from(n).ok()).into_iter().collect(),
            _ => Vec::new(),
        },
        since_ms: body.text("since").as_deref().and_then(parse_time),
        until_ms: body.text("until").as_deref().and_then(parse_time),
        tags: body.texts("tags").unwrap_or_default(),
    }
}

fn read_recall(body: &mut Params) -> Recall {
    body.accept(&["session_id", "telemetry", "query_expansion", "dedup_turns", "rewrite"]);
    Recall {
        query: body.required("query"),
        max_tokens: body.integer("max_tokens", 1).and_then(|n| u64::try_from(n).ok()),
        threshold: body.number("score_threshold"),
        quotas: body.object("quotas"),
        limit: body.integer("limit", 1).map(usize_of),
        context_types: body.texts("context_type").unwrap_or_default(),
        abstracts: body.one_of("detail", &["abstract", "overview", "full"]) == Some("abstract"),
        all_peers: body.one_of("peer_scope", &["actor", "all"]) == Some("all"),
        purpose: body.text("purpose"),
        deprecated: false,
    }
}

fn searches(ask: &Ask<'_>, rest: &[&str]) -> Result<Answer> {
    if ask.method != Method::POST {
        return Err(no_route(ask));
    }
    let account = ask.store.account(&ask.who)?;
    let mut body = Params::body(ask.body)?;
    match rest {
        ["search"] if body.text("mode").as_deref() == Some("context") => {
            let asked = read_recall(&mut body);
            body.finish()?;
            Ok(Answer::Short(search::recall(&account, &ask.who, &asked)?))
        }
        ["find" | "search"] => {
            let find = read_find(&mut body);
            let read = body.flag("read_content").unwrap_or_default();
            body.accept(&["telemetry", "time_field", "include_provenance"]);
            body.refuse(&["filter", "image_url"]);
            if rest == ["search"] {
                // All but the first two say how a context is put together, and none was asked for.
                body.accept(&[
                    "session_id",
                    "query_expansion",
                    "max_tokens",
                    "quotas",
                    "detail",
                    "dedup_turns",
                    "purpose",
                    "peer_scope",
                ]);
            }
            body.finish()?;
            Ok(Answer::Short(search::find(&account, &ask.who, &find, read)?))
        }
        ["recall"] => {
            let asked = Recall { deprecated: true, ..read_recall(&mut body) };
            body.finish()?;
            Ok(Answer::Short(search::recall(&account, &ask.who, &asked)?))
        }
        ["grep"] => {
            let uri = body.required("uri");
            let pattern = body.required("pattern");
            let exclude = body.text("exclude_uri");
            let how = Grep {
                pattern: &pattern,
                case_insensitive: body.flag("case_insensitive").unwrap_or_default(),
                node_limit: body.integer("node_limit", 1).map_or(256, usize_of),
                level_limit: body.integer("level_limit", 0).map_or(10, usize_of),
                before: body.integer("before_context", 0).map_or(0, usize_of),
                after: body.integer("after_context", 0).map_or(0, usize_of),
                exclude: None,
            };
            body.finish()?;
            let place = Place::parse(&uri, &ask.who)?;
            let exclude = exclude.map(|uri| Place::parse(&uri, &ask.who)).transpose()?;
            Ok(Answer::Full(scan::grep(&account, &ask.who, &place, &Grep { exclude, ..how })?))
        }
        ["glob"] => {
            let pattern = body.required("pattern");
            let uri = body.text("uri").unwrap_or_else(|| crate::store::uri::SCHEME.to_owned());
            let limit = body.integer("node_limit", 1).map_or(256, usize_of);
            body.finish()?;
            Ok(Answer::Full(scan::glob(&account, &ask.who, &Place::parse(&uri, &ask.who)?, &pattern, limit)?))
        }
        _ => Err(no_route(ask)),
    }
}

fn temp_upload(ask: &Ask<'_>) -> Result<Answer> {
    let account = ask.store.account(&ask.who)?;
    let kind = ask.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let upload = upload::file(kind, ask.body)?;
    let id = resources::keep_upload(&account, &upload.name, upload.bytes)?;
    Ok(Answer::Short(json!({"temp_file_id": id})))
}

fn tag_mode(body: &mut Params, name: &'static str) -> TagMode {
    match body.one_of(name, &["replace", "append", "clear"]) {
        Some("append") => TagMode::Append,
        Some("clear") => TagMode::Clear,
        _ => TagMode::Replace,
    }
}

fn set_tags(ask: &Ask<'_>) -> Result<Answer> {
    let account = ask.store.account(&ask.who)?;
    let mut body = Params::body(ask.body)?;
    let uri = body.required("uri");
    let tags = body.texts("tags").unwrap_or_default();
    let mode = tag_mode(&mut body, "mode");
    // A folder's labels are those of everything below it.
    body.accept(&["recursive", "telemetry"]);
    body.finish()?;
    Ok(Answer::Full(resources::set_tags(&account, &Place::parse(&uri, &ask.who)?, &tags, mode)?))
}

fn add_resource(ask: &Ask<'_>) -> Result<Answer> {
    let account = ask.store.account(&ask.who)?;
    let mut body = Params::body(ask.body)?;
    let new = NewResource {
        path: body.text("path"),
        upload: body.text("temp_file_id"),
        source_name: body.text("source_name"),
        to: body.text("to"),
        parent: body.text("parent"),
        reason: body.text("reason"),
        instruction: body.text("instruction"),
        strict: body.flag("strict").unwrap_or_default(),
        include: body.texts("include").unwrap_or_default(),
        exclude: body.texts("exclude").unwrap_or_default(),
        ignore_dirs: body.texts("ignore_dirs").unwrap_or_default(),
        tags: body.texts("tags").unwrap_or_default(),
        tag_mode: tag_mode(&mut body, "tag_mode"),
        parent_exists: body.flag("create_parent") == Some(false),
        watch_minutes: body.number("watch_interval").filter(|n| *n > 0.0),
        watch_paused: body.flag("is_active") == Some(false),
        describe: body.one_of("processing_mode", &["semantic_and_vectors", "vectors_only"]) != Some("vectors_only"),
        host_paths: false,
        ..NewResource::default()
    };
    // Everything is done before the answer; there is nothing to wait for.
    body.accept(&["wait", "telemetry", "directly_upload_media"]);
    body.only("preserve_structure", true);
    body.refuse(&["acl", "args"]);
    if new.path.is_none() && new.upload.is_none() {
        body.whole("Either 'path' or 'temp_file_id' must be provided");
    }
    body.finish()?;
    Ok(Answer::Short(ask.store.import(&account, &ask.who, &new)?))
}

fn skill(ask: &Ask<'_>, name: &str) -> Result<Answer> {
    let account = ask.store.account(&ask.who)?;
    if ask.method == Method::DELETE {
        return Ok(Answer::Full(skills::remove(&account, &ask.who, name)?));
    }
    let mut query = Params::query(ask.query);
    let content = query.flag("include_content").unwrap_or(true);
    let files = query.flag("include_files").unwrap_or(true);
    query.finish()?;
    Ok(Answer::Full(skills::show(&account, &ask.who, name, content, files)?))
}

fn add_skill(ask: &Ask<'_>) -> Result<Answer> {
    let account = ask.store.account(&ask.who)?;
    let mut body = Params::body(ask.body)?;
    let data = body.any("data");
    let upload = body.text("temp_file_id");
    let list_only = body.flag("list_only").unwrap_or_default();
    body.accept(&["wait", "timeout", "telemetry", "source_name", "reason", "allow_overwrite", "source_metadata"]);
    body.refuse(&["target_uri", "skills"]);
    if data.is_none() == upload.is_none() {
        body.whole("Either 'data' or 'temp_file_id' must be provided");
    }
    body.finish()?;
    if let Some(id) = upload.as_ref().filter(|_| list_only) {
        return Ok(Answer::Short(resources::look_into_upload(&account, id, skills::inspect)?));
    }
    let mut told = match (data, upload) {
        (Some(data), _) => skills::add_data(&account, &ask.who, &data)?,
        (None, Some(id)) => resources::with_upload(&account, &id, |path| skills::add_path(&account, &ask.who, path))?,
        (None, None) => return Err(no_route(ask)),
    };
    told["task_id"] = done(ask, "add_skill", told["uri"].as_str().unwrap_or_default()).into();
    Ok(Answer::Short(told))
}

fn watches(ask: &Ask<'_>, rest: &[&str]) -> Result<Answer> {
    let account = ask.store.account(&ask.who)?;
    let mut query = Params::query(ask.query);
    let mut to_uri = query.text("to_uri");
    query.finish()?;
    let patch = matches!(ask.method, Method::PATCH | Method::POST);
    let mut body = Params::body(if patch { ask.body } else { &[] })?;
    if patch {
        to_uri = body.text("to_uri").or(to_uri);
    }
    let importer = &ask.store.importer;
    // A watch is named by its id in the path, or by what it keeps up to date.
    let (named, trigger) = match rest {
        [] => (to_uri, false),
        ["trigger"] => (to_uri, true),
        [id] => (Some((*id).to_owned()), false),
        [id, "trigger"] => (Some((*id).to_owned()), true),
        _ => return Err(no_route(ask)),
    };
    match (ask.method.as_str(), named) {
        ("GET", None) => Ok(Answer::Full(json!({"watches": importer.watches(&account)?}))),
        ("GET", Some(id)) if !trigger => Ok(Answer::Full(importer.watch(&account, &id)?)),
        ("DELETE", Some(id)) if !trigger => Ok(Answer::Full(importer.unwatch(&account, &id)?)),
        ("PATCH", Some(id)) if !trigger => {
            let minutes = body.number("watch_interval").or(body.number("interval_minutes")).filter(|n| *n > 0.0);
            let active = body.flag("is_active");
            body.finish()?;
            Ok(Answer::Full(importer.rewatch(&account, &id, minutes, active)?))
        }
        ("POST", Some(id)) if trigger => Ok(Answer::Full(ask.store.trigger(&account, &id)?)),
        _ => Err(no_route(ask)),
    }
}
