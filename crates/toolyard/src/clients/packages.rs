//! Plugin packages: what `connect --plugin` writes for clients that install plugins or extensions. One folder is a
//! marketplace for Claude Code and for Codex; Gemini CLI has extensions, and
//! opencode a plugin of one file.

use super::{Program, hook_entries, servers::OWN_NAME};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::PathBuf};
use toolyard_hooks::Client;

const SKILL: &str = include_str!("package/SKILL.md");
const OPENCODE: &str = include_str!("package/opencode.js");
const README: &str = include_str!("package/README.md");
const LICENSE: &str = include_str!("../../../../LICENSE");
const DESCRIPTION: &str = "Toolyard's tools, and hooks that decide about, record and take back an agent's own calls";

/// A file of a package, by its path in the package's folder.
pub(crate) struct PackageFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

#[derive(Serialize)]
struct Named {
    name: &'static str,
}

#[derive(Serialize)]
struct ClaudeMarketplace {
    name: &'static str,
    description: &'static str,
    owner: Named,
    plugins: [ClaudeListed; 1],
}

#[derive(Serialize)]
struct ClaudeListed {
    name: &'static str,
    source: &'static str,
    description: &'static str,
}

#[derive(Serialize)]
struct CodexMarketplace {
    name: &'static str,
    interface: CodexInterface,
    plugins: [CodexListed; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CodexInterface {
    display_name: &'static str,
}

#[derive(Serialize)]
struct CodexListed {
    name: &'static str,
    source: CodexSource,
    policy: CodexPolicy,
    category: &'static str,
}

#[derive(Serialize)]
struct CodexSource {
    source: &'static str,
    path: &'static str,
}

#[derive(Serialize)]
struct CodexPolicy {
    installation: &'static str,
    authentication: &'static str,
}

/// A plugin's manifest, for Claude Code and, with the places of its parts, for Codex.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    name: &'static str,
    version: &'static str,
    description: &'static str,
    author: Named,
    license: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp_servers: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skills: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hooks: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeminiExtension {
    name: &'static str,
    version: &'static str,
    description: &'static str,
    mcp_servers: BTreeMap<&'static str, Server>,
    context_file_name: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Servers {
    mcp_servers: BTreeMap<&'static str, Server>,
}

#[derive(Serialize)]
struct Server {
    command: String,
    args: Vec<String>,
}

#[derive(Serialize)]
struct Hooks {
    hooks: Map<String, Value>,
}

fn servers(program: &Program) -> BTreeMap<&'static str, Server> {
    BTreeMap::from([(OWN_NAME, Server { command: program.command(), args: program.arguments(&["mcp"]) })])
}

fn hooks(client: Client, program: &Program) -> Hooks {
    let wanted = hook_entries::wanted(client, program);
    Hooks { hooks: wanted.into_iter().map(|(event, group)| (event.to_owned(), Value::Array(vec![group]))).collect() }
}

const fn manifest(for_codex: bool) -> Manifest {
    Manifest {
        name: OWN_NAME,
        version: env!("CARGO_PKG_VERSION"),
        description: DESCRIPTION,
        author: Named { name: "Toolyard" },
        license: env!("CARGO_PKG_LICENSE"),
        mcp_servers: if for_codex { Some("./.mcp.json") } else { None },
        skills: if for_codex { Some("./skills/") } else { None },
        hooks: if for_codex { Some("./hooks/codex.json") } else { None },
    }
}

fn json(path: &str, value: &impl Serialize) -> Result<PackageFile, serde_json::Error> {
    Ok(PackageFile { path: path.into(), text: format!("{}\n", serde_json::to_string_pretty(value)?) })
}

fn text(path: &str, text: &str) -> PackageFile {
    PackageFile { path: path.into(), text: text.to_owned() }
}

/// The files of a client's package.
pub(crate) fn files(client: Client, program: &Program) -> Result<Vec<PackageFile>, serde_json::Error> {
    match client {
        Client::Claude | Client::Codex => marketplace(program),
        Client::Gemini => gemini(program),
        Client::Opencode => opencode(program),
    }
}

fn marketplace(program: &Program) -> Result<Vec<PackageFile>, serde_json::Error> {
    let source = "./plugins/toolyard";
    let claude = ClaudeMarketplace {
        name: OWN_NAME,
        description: DESCRIPTION,
        owner: Named { name: "Toolyard" },
        plugins: [ClaudeListed { name: OWN_NAME, source, description: DESCRIPTION }],
    };
    let codex = CodexMarketplace {
        name: OWN_NAME,
        interface: CodexInterface { display_name: "Toolyard" },
        plugins: [CodexListed {
            name: OWN_NAME,
            source: CodexSource { source: "local", path: source },
            policy: CodexPolicy { installation: "AVAILABLE", authentication: "ON_INSTALL" },
            category: "Productivity",
        }],
    };
    Ok(vec![
        json(".claude-plugin/marketplace.json", &claude)?,
        json(".agents/plugins/marketplace.json", &codex)?,
        json("plugins/toolyard/.claude-plugin/plugin.json", &manifest(false))?,
        json("plugins/toolyard/.codex-plugin/plugin.json", &manifest(true))?,
        json("plugins/toolyard/.mcp.json", &Servers { mcp_servers: servers(program) })?,
        json("plugins/toolyard/hooks/hooks.json", &hooks(Client::Claude, program))?,
        json("plugins/toolyard/hooks/codex.json", &hooks(Client::Codex, program))?,
        text("plugins/toolyard/skills/toolyard/SKILL.md", SKILL),
        text("plugins/toolyard/README.md", README),
        text("plugins/toolyard/LICENSE", LICENSE),
    ])
}

fn gemini(program: &Program) -> Result<Vec<PackageFile>, serde_json::Error> {
    let extension = GeminiExtension {
        name: OWN_NAME,
        version: env!("CARGO_PKG_VERSION"),
        description: DESCRIPTION,
        mcp_servers: servers(program),
        context_file_name: "GEMINI.md",
    };
    // The context file is the skill without its header, which Gemini CLI would show as text.
    let context = SKILL.splitn(3, "---\n").nth(2).unwrap_or(SKILL).trim_start();
    Ok(vec![
        json("gemini-extension.json", &extension)?,
        json("hooks/hooks.json", &hooks(Client::Gemini, program))?,
        text("GEMINI.md", context),
        text("README.md", README),
        text("LICENSE", LICENSE),
    ])
}

fn opencode(program: &Program) -> Result<Vec<PackageFile>, serde_json::Error> {
    let words = [vec![program.command()], program.arguments(&["hooks", "run", "--client", "opencode"])].concat();
    Ok(vec![text("toolyard.js", &OPENCODE.replace("__COMMAND__", &serde_json::to_string(&words)?))])
}

/// What a person does to install a package.
pub(crate) fn steps(client: Client, folder: &std::path::Path) -> Vec<String> {
    let folder = folder.display();
    match client {
        Client::Claude => vec![
            format!("claude plugin marketplace add {folder}"),
            "claude plugin install toolyard@toolyard".to_owned(),
        ],
        Client::Codex => {
            vec![format!("codex plugin marketplace add {folder}"), "codex plugin add toolyard@toolyard".to_owned()]
        }
        Client::Gemini => vec![format!("gemini extensions install {folder}")],
        Client::Opencode => vec![format!("add \"file://{folder}/toolyard.js\" to \"plugin\" in opencode.json")],
    }
}
