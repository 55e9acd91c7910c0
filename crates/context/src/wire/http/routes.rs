//! The routes of the interface.

use super::{Answer, Ask, params::Params, traces, upload};
use crate::{
    error::{ApiError, Result},
    find::{
        library::Hit,
        scan::{self, Grep},
        search::{self, Find, Recall},
    },
    sessions,
    store::{
        account::Account,
        fs::{self, Listing, Mode},
        memory::parse_time,
        resources::{self, NewResource, TagMode},
        skills::{self, Form},
        uri::{Kind, StorePath},
        watches::Watch,
    },
    wire::{
        compat::{Compat, Queues},
        given,
        shapes::{
            self, CopiedShape, GlobShape, GrepShape, Grouped, ImportShape, InspectedShape, InstalledShape, Item,
            MemoryShape, RecallRequest, RecallShape, RemovedShape, Row, RowStyle, SkillShape, SkillsShape, StatShape,
            TaggedShape, TaskShape, WrittenShape,
        },
    },
};
use http::{Method, StatusCode, header};
use serde::Serialize;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// The version of the interface.
const VERSION: &str = "0.5.2";

/// Whether a request is a health check, which is answered from memory.
pub(super) fn is_probe(request: &http::Request<bytes::Bytes>) -> bool {
    let path = request.uri().path();
    matches!(path.strip_prefix(super::PREFIX).unwrap_or(path), "/health" | "/ready")
}

pub(super) fn answer(ask: &Ask<'_>) -> Result<Answer> {
    let path: Vec<&str> = ask.path.iter().map(String::as_str).collect();
    let is = |method: Method| ask.method == method;
    match path.as_slice() {
        ["health"] => Answer::plain(StatusCode::OK, Health::default()),
        ["ready"] => Answer::plain(StatusCode::OK, Ready { status: "ready", compat: Compat::ready() }),
        ["api", "openviking", rest @ ..] => traces::answer(ask, rest),
        ["api", "v1", rest @ ..] => match rest {
            ["system", "status"] if is(Method::GET) => {
                Answer::full(SystemStatus { initialized: true, user: &ask.who.user })
            }
            ["system", "wait"] if is(Method::POST) => Answer::full(Queues::done(0, 0)),
            ["fs", rest @ ..] => files(ask, rest),
            ["content", rest @ ..] => content(ask, rest),
            ["search", rest @ ..] => searches(ask, rest),
            ["resources"] if is(Method::POST) => add_resource(ask),
            ["resources", "temp_upload"] if is(Method::POST) => temp_upload(ask),
            ["skills"] if is(Method::POST) => add_skill(ask),
            ["skills", name] if is(Method::GET) || is(Method::DELETE) => skill(ask, name),
            ["skills"] if is(Method::GET) => {
                let listed = skills::list(&*ask.store.account(&ask.who)?, &ask.who)?;
                Answer::full(SkillsShape::new(&skills::roots(&ask.who)?, listed))
            }
            ["sessions", rest @ ..] => super::sessions::answer(ask, rest),
            ["watches", rest @ ..] => watches(ask, rest),
            ["tasks"] if is(Method::GET) => {
                let mut query = Params::query(ask.query);
                let limit = query.integer("limit", 1).unwrap_or(50);
                query.finish()?;
                let tasks = ask.store.tasks.list(&owner(ask), usize_of(limit));
                Answer::full(tasks.into_iter().map(TaskShape::from).collect::<Vec<_>>())
            }
            ["tasks", id] if is(Method::GET) => Answer::full(TaskShape::from(ask.store.tasks.get(id, &owner(ask))?)),
            _ => Err(no_route(ask)),
        },
        _ => Err(no_route(ask)),
    }
}

/// `GET /health`.
#[derive(Serialize)]
struct Health {
    status: &'static str,
    healthy: bool,
    version: &'static str,
    auth_mode: &'static str,
}

impl Default for Health {
    fn default() -> Self {
        Self { status: "ok", healthy: true, version: VERSION, auth_mode: "api_key" }
    }
}

/// `GET /ready`.
#[derive(Serialize)]
struct Ready {
    status: &'static str,
    #[serde(flatten)]
    compat: Compat,
}

/// `GET /system/status`.
#[derive(Serialize)]
struct SystemStatus<'a> {
    initialized: bool,
    user: &'a str,
}

/// A URI.
#[derive(Serialize)]
struct UriShape {
    uri: String,
}

/// `POST /fs/mv`.
#[derive(Serialize)]
struct MovedShape {
    from: String,
    to: String,
}

/// `GET /fs/attrs`.
#[derive(Serialize)]
struct AttrsShape {
    uri: String,
    attrs: Attrs,
}

#[derive(Serialize)]
struct Attrs {
    tags: Vec<String>,
}

/// `POST /resources/temp_upload`.
#[derive(Serialize)]
struct UploadShape {
    temp_file_id: String,
}

/// `GET /watches`.
#[derive(Serialize)]
struct WatchesShape {
    watches: Vec<Watch>,
}

/// `DELETE /watches/{id}`.
#[derive(Serialize)]
struct UnwatchedShape {
    deleted: String,
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
        ("GET", ["ls" | "tree"]) => list(ask, &account, &mut query, rest == ["tree"]),
        ("GET", ["stat"]) => {
            let uri = query.required("uri");
            query.finish()?;
            Answer::full(StatShape::from(fs::stat(&account, &StorePath::parse(&uri, &ask.who)?)?))
        }
        ("GET", ["attrs"]) => {
            let uri = query.required("uri");
            query.finish()?;
            let place = StorePath::parse(&uri, &ask.who)?;
            fs::stat(&account, &place)?;
            let tags = account.library.labels_of(&account, &place)?;
            Answer::full(AttrsShape { uri: place.to_string(), attrs: Attrs { tags } })
        }
        ("POST", ["attrs", "set_tags"]) => set_tags(ask),
        ("POST", ["cp"]) => {
            let mut body = Params::body(ask.body)?;
            let (from, to) = (body.required("from_uri"), body.required("to_uri"));
            let recursive = body.flag("recursive").unwrap_or_default();
            body.finish()?;
            let (from, to) = (StorePath::parse(&from, &ask.who)?, StorePath::parse(&to, &ask.who)?);
            let copied = fs::cp(&account, &from, &to, recursive)?;
            Answer::full(CopiedShape::new(&from, &to, recursive, copied))
        }
        ("POST", ["mkdir"]) => {
            let mut body = Params::body(ask.body)?;
            let uri = body.required("uri");
            let about = body.text("description");
            body.finish()?;
            let place = StorePath::parse(&uri, &ask.who)?;
            fs::mkdir(&account, &place, about.as_deref())?;
            Answer::full(UriShape { uri: place.to_string() })
        }
        ("POST", ["mv"]) => {
            let mut body = Params::body(ask.body)?;
            let (from, to) = (body.required("from_uri"), body.required("to_uri"));
            body.finish()?;
            let (from, to) = (StorePath::parse(&from, &ask.who)?, StorePath::parse(&to, &ask.who)?);
            fs::mv(&account, &from, &to)?;
            Answer::full(MovedShape { from: from.to_string(), to: to.to_string() })
        }
        ("DELETE", []) => remove(ask, &account, &mut query),
        _ => Err(no_route(ask)),
    }
}

/// `ls`, and `tree`, which lists all levels.
fn list(ask: &Ask<'_>, account: &Arc<Account>, query: &mut Params, tree: bool) -> Result<Answer> {
    let uri = query.text("uri").unwrap_or_else(|| crate::store::uri::SCHEME.to_owned());
    let output = query.one_of("output", &["agent", "original"]).unwrap_or("agent");
    let style = match (query.flag("simple").unwrap_or_default(), output) {
        (true, _) => RowStyle::Simple,
        (false, "original") => RowStyle::Original,
        (false, _) => RowStyle::Agent,
    };
    let limit = query.integer("limit", 1);
    let defaults = Listing::default();
    let abstracts = query.integer("abs_limit", 0).map(usize_of).or(defaults.abstracts);
    let how = Listing {
        recursive: tree || query.flag("recursive").unwrap_or_default(),
        abstracts: abstracts.filter(|_| style == RowStyle::Agent),
        hidden: query.flag("show_all_hidden").unwrap_or_default(),
        node_limit: limit.or(query.integer("node_limit", 1)).map_or(defaults.node_limit, usize_of),
        offset: query.integer("offset", 0).map_or(0, usize_of),
        level_limit: query.integer("level_limit", 1).map_or(if tree { 3 } else { usize::MAX }, usize_of),
    };
    query.finish()?;
    let place = StorePath::parse(&uri, &ask.who)?;
    let (entries, more) = fs::list(account, &ask.who, &place, &how)?;
    let rows: Vec<Row> = entries.into_iter().map(|entry| Row::new(entry, style, how.recursive)).collect();
    Ok(Answer::Listed(shapes::value(rows)?, more))
}

/// Removes a file, a folder or a session.
fn remove(ask: &Ask<'_>, account: &Arc<Account>, query: &mut Params) -> Result<Answer> {
    let uri = query.required("uri");
    let recursive = query.flag("recursive").unwrap_or_default();
    query.finish()?;
    let place = StorePath::parse(&uri, &ask.who)?;
    let names: Vec<&str> = place.names().iter().map(String::as_str).collect();
    let count = match names.as_slice() {
        ["user", _, "sessions", id] if recursive && sessions::describe(account, &ask.who, id).is_ok() => {
            sessions::delete(account, &ask.who, id)?;
            1
        }
        _ => fs::remove(account, &place, recursive)?,
    };
    Answer::full(RemovedShape {
        name: None,
        uri: place.to_string(),
        root_uri: None,
        estimated_deleted_count: count,
        task_id: Some(done(ask, "fs_delete", &place.to_string())),
    })
}

/// Creates a task that is already complete.
fn done(ask: &Ask<'_>, kind: &'static str, resource: &str) -> String {
    let task = ask.store.tasks.begin(kind, resource, &owner(ask));
    ask.store.tasks.end(&task, crate::sessions::tasks::TaskResult::default());
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
            let text = fs::read(&account, &StorePath::parse(&uri, &ask.who)?)?;
            Answer::full(fs::lines(&text, usize_of(offset), limit))
        }
        ("GET", [what @ ("memory" | "download" | "abstract" | "overview")]) => {
            let uri = query.required("uri");
            query.finish()?;
            let place = StorePath::parse(&uri, &ask.who)?;
            match *what {
                "memory" => Answer::full(MemoryShape::read(&account, &place)?),
                "download" => Ok(Answer::File(fs::read(&account, &place)?)),
                "abstract" => Answer::full(fs::described(&account, &place)?.0),
                _ => Answer::full(fs::described(&account, &place)?.1),
            }
        }
        ("POST", ["set_tags"]) => set_tags(ask),
        ("POST", ["write"]) => {
            let mut body = Params::body(ask.body)?;
            let uri = body.required("uri");
            let text = body.required("content");
            let mode = body.one_of("mode", &["replace", "append", "create"]).unwrap_or("replace");
            body.accept(&["wait", "timeout", "telemetry", "regenerate_semantics", "revectorize"]);
            body.finish()?;
            let how = match mode {
                "append" => Mode::Append,
                "create" => Mode::Create,
                _ => Mode::Replace,
            };
            let place = StorePath::parse(&uri, &ask.who)?;
            let written = fs::write(&account, &place, &text, how)?;
            Answer::short(WrittenShape::new(&place, mode, written))
        }
        _ => Err(no_route(ask)),
    }
}

/// Parses the names of searchable kinds.
fn kinds(words: &[String]) -> Result<Vec<Kind>> {
    let kind = |word: &String| match word.as_str() {
        "memory" => Ok(Kind::Memory),
        "resource" => Ok(Kind::Resource),
        "skill" => Ok(Kind::Skill),
        other => Err(ApiError::argument(format!("Invalid context_type: {}", fs::cut(other, 40)))),
    };
    words.iter().map(kind).collect()
}

/// Parses a `find` request, and the names of kinds, which are validated after everything else.
fn read_find(body: &mut Params) -> (Find, Vec<String>) {
    let find = Find {
        query: body.text("query").unwrap_or_default(),
        targets: body.texts("target_uri").unwrap_or_default().into_iter().filter(|uri| !uri.is_empty()).collect(),
        kinds: Vec::new(),
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
    };
    (find, body.texts("context_type").unwrap_or_default())
}

fn read_recall(body: &mut Params, deprecated: bool) -> (RecallRequest, Vec<String>) {
    body.accept(&["session_id", "telemetry", "query_expansion", "dedup_turns", "rewrite"]);
    let asked = Recall {
        query: body.required("query"),
        max_tokens: body.integer("max_tokens", 1).and_then(|n| u64::try_from(n).ok()),
        threshold: body.number("score_threshold"),
        quotas: body.object("quotas").map(quotas).unwrap_or_default(),
        limit: body.integer("limit", 1).map(usize_of),
        kinds: Vec::new(),
        abstracts: body.one_of("detail", &["abstract", "overview", "full"]) == Some("abstract"),
        all_peers: body.one_of("peer_scope", &["actor", "all"]) == Some("all"),
    };
    let request = RecallRequest { asked, purpose: body.text("purpose"), deprecated };
    (request, body.texts("context_type").unwrap_or_default())
}

fn quotas(given: serde_json::Map<String, Value>) -> BTreeMap<String, u64> {
    given.into_iter().filter_map(|(name, most)| most.as_u64().map(|most| (name, most))).collect()
}

fn recalled(ask: &Ask<'_>, (mut request, types): (RecallRequest, Vec<String>)) -> Result<Answer> {
    let account = ask.store.account(&ask.who)?;
    request.asked.kinds = kinds(&types)?;
    let recalled = search::recall(&account, &ask.who, &request.asked)?;
    Answer::short(RecallShape::new(request, &ask.who, recalled))
}

fn searches(ask: &Ask<'_>, rest: &[&str]) -> Result<Answer> {
    if ask.method != Method::POST {
        return Err(no_route(ask));
    }
    let account = ask.store.account(&ask.who)?;
    let mut body = Params::body(ask.body)?;
    match rest {
        ["search"] if body.text("mode").as_deref() == Some("context") => {
            let request = read_recall(&mut body, false);
            body.finish()?;
            recalled(ask, request)
        }
        ["find" | "search"] => {
            let (find, types) = read_find(&mut body);
            let read = body.flag("read_content").unwrap_or_default();
            body.accept(&["telemetry", "time_field", "include_provenance"]);
            body.refuse(&["filter", "image_url"]);
            if rest == ["search"] {
                // All but the first two configure the assembly of a context, which was not requested.
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
            let hits = search::find(&account, &ask.who, &Find { kinds: kinds(&types)?, ..find })?;
            let content =
                |hit: &Hit| StorePath::parse(&hit.uri, &ask.who).and_then(|place| fs::read(&account, &place)).ok();
            let item = |hit: &Hit| if read { Item::with_content(hit, content(hit)) } else { Item::from(hit) };
            Answer::short(Grouped::new(&hits, item))
        }
        ["recall"] => {
            let request = read_recall(&mut body, true);
            body.finish()?;
            recalled(ask, request)
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
            let place = StorePath::parse(&uri, &ask.who)?;
            let exclude = exclude.map(|uri| StorePath::parse(&uri, &ask.who)).transpose()?;
            Answer::full(GrepShape::new(scan::grep(&account, &ask.who, &place, &Grep { exclude, ..how })?))
        }
        ["glob"] => {
            let pattern = body.required("pattern");
            let uri = body.text("uri").unwrap_or_else(|| crate::store::uri::SCHEME.to_owned());
            let limit = body.integer("node_limit", 1).map_or(256, usize_of);
            body.finish()?;
            let matches = scan::glob(&account, &ask.who, &StorePath::parse(&uri, &ask.who)?, &pattern, limit)?;
            Answer::full(GlobShape { count: matches.len(), matches })
        }
        _ => Err(no_route(ask)),
    }
}

fn temp_upload(ask: &Ask<'_>) -> Result<Answer> {
    let account = ask.store.account(&ask.who)?;
    let kind = ask.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let upload = upload::file(kind, ask.body)?;
    let id = resources::keep_upload(&account, &upload.name, upload.bytes)?;
    Answer::short(UploadShape { temp_file_id: id })
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
    // The tags of a folder apply to everything inside it.
    body.accept(&["recursive", "telemetry"]);
    body.finish()?;
    let place = StorePath::parse(&uri, &ask.who)?;
    let labels = resources::set_tags(&account, &place, &tags, mode)?;
    Answer::full(TaggedShape::new(&place, labels, mode.as_str()))
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
    // The import completes before the response, so there is nothing to wait for.
    body.accept(&["wait", "telemetry", "directly_upload_media"]);
    body.only("preserve_structure", true);
    body.refuse(&["acl", "args"]);
    if new.path.is_none() && new.upload.is_none() {
        body.whole("Either 'path' or 'temp_file_id' must be provided");
    }
    body.finish()?;
    Answer::short(ImportShape::new(ask.store.import(&account, &ask.who, &new)?, &ask.who))
}

fn skill(ask: &Ask<'_>, name: &str) -> Result<Answer> {
    let account = ask.store.account(&ask.who)?;
    if ask.method == Method::DELETE {
        let (place, count) = skills::remove(&account, &ask.who, name)?;
        return Answer::full(RemovedShape {
            name: Some(name.to_owned()),
            uri: place.to_string(),
            root_uri: Some(place.to_string()),
            estimated_deleted_count: count,
            task_id: None,
        });
    }
    let mut query = Params::query(ask.query);
    let content = query.flag("include_content").unwrap_or(true);
    let files = query.flag("include_files").unwrap_or(true);
    query.finish()?;
    Answer::full(SkillShape::new(skills::show(&account, &ask.who, name)?, content, files))
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
        let about = resources::look_into_upload(&account, id, skills::inspect)?;
        return Answer::short(InspectedShape { skills: [about], total: 1 });
    }
    let skill = match (data, upload) {
        (Some(data), _) => skills::add_data(&account, &ask.who, &given::skill(&data)?)?,
        (None, Some(id)) => {
            resources::with_upload(&account, &id, |path| skills::add_path(&account, &ask.who, path, Form::FrontMatter))?
        }
        (None, None) => return Err(no_route(ask)),
    };
    let task = done(ask, "add_skill", &skill.uri);
    Answer::short(InstalledShape::new(skill, task))
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
    // A watch is identified by its id in the path, or by the URI that it updates.
    let (named, trigger) = match rest {
        [] => (to_uri, false),
        ["trigger"] => (to_uri, true),
        [id] => (Some((*id).to_owned()), false),
        [id, "trigger"] => (Some((*id).to_owned()), true),
        _ => return Err(no_route(ask)),
    };
    match (ask.method.as_str(), named) {
        ("GET", None) => Answer::full(WatchesShape { watches: importer.watches(&account)? }),
        ("GET", Some(id)) if !trigger => Answer::full(importer.watch(&account, &id)?),
        ("DELETE", Some(id)) if !trigger => {
            importer.unwatch(&account, &id)?;
            Answer::full(UnwatchedShape { deleted: id })
        }
        ("PATCH", Some(id)) if !trigger => {
            let minutes = body.number("watch_interval").or(body.number("interval_minutes")).filter(|n| *n > 0.0);
            let active = body.flag("is_active");
            body.finish()?;
            Answer::full(importer.rewatch(&account, &id, minutes, active)?)
        }
        ("POST", Some(id)) if trigger => Answer::full(ImportShape::new(ask.store.trigger(&account, &id)?, &ask.who)),
        _ => Err(no_route(ask)),
    }
}
