//! Compares the tools that an upstream server offers with the approved ones: which are added to the catalog, which are
//! withheld until a person approves them, and which are left out.

use super::{
    config::Pinning,
    define::{self, CatalogTool},
    definition::{self, Definition, name_of},
    pins::{Pin, Pins, ServerCatalog},
    status::{Approved, OmittedTool, ShownDefinition, WithheldReason, WithheldTool},
    terms::HookInterest,
    upstream::{Upstream, lock},
};
use crate::{
    RpcError,
    headers::Mirrored,
    server::Change,
    wire::{
        self,
        upstream::{ForwardedPrompt, ForwardedResource, ForwardedTemplate, ToolDetails},
    },
};
use jiff::Timestamp;
use serde_json::Value;
use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use toolyard_catalog::ToolEntry;
use toolyard_protocol::{ErrorCode, Failure, ToolName};

/// The delay before a changed list is requested again, so that several changes cause one request.
const SETTLE: Duration = Duration::from_millis(50);
/// The age after which lists of prompts and resources are requested again.
const LISTS_FRESH: Duration = Duration::from_secs(30);

/// The known offers of a server.
#[derive(Default)]
pub(super) struct KnownOffers {
    /// Sorted by the name in the catalog.
    pub(super) tools: Vec<(ToolName, StoredTool)>,
    pub(super) prompts: Arc<Vec<ForwardedPrompt>>,
    pub(super) resources: Arc<Vec<ForwardedResource>>,
    pub(super) templates: Arc<Vec<ForwardedTemplate>>,
    pub(super) withheld: Vec<WithheldTool>,
    pub(super) left_out: Vec<OmittedTool>,
    pub(super) hooks: Vec<HookInterest>,
    pub(super) health: Value,
    pub(super) looked: Option<Instant>,
    pub(super) protocol: Option<String>,
}

/// What is kept of a tool in addition to its catalog entry. There may be thousands.
pub(super) struct StoredTool {
    /// The server's name of the tool, if it is not the catalog's name without the prefix.
    original: Option<Box<str>>,
    mirrored: Arc<[Mirrored]>,
    /// As JSON text, which is parsed when a list is written. Tools with the same text share it.
    extras: Option<Arc<str>>,
}

/// A tool as calls need it.
pub(crate) struct CallableTool {
    pub(crate) original: String,
    pub(crate) mirrored: Arc<[Mirrored]>,
    extras: Option<Arc<str>>,
}

impl CallableTool {
    /// The parts of the definition that are not in the catalog.
    pub(crate) fn extras(&self) -> Option<Arc<ToolDetails>> {
        let read = serde_json::from_str(self.extras.as_ref()?);
        read.inspect_err(|error| tracing::error!(%error, "what a server says of a tool cannot be read back"))
            .ok()
            .map(Arc::new)
    }
}

impl Upstream {
    /// Accepts what a server offers: compares it with what was approved, and adds the rest to the catalog. `restored`
    /// if it comes from the stored catalog.
    pub(crate) async fn adopt(&self, seen: ServerCatalog, restored: bool) -> Result<(), Failure> {
        if let Some(batch) = self.compare(seen, restored).await? {
            self.shared.publish(vec![(self.this.clone(), batch)])?;
        }
        Ok(())
    }

    /// Compares with what was approved. Gives the tools for the catalog.
    pub(crate) async fn compare(&self, seen: ServerCatalog, restored: bool) -> Result<Option<Vec<ToolEntry>>, Failure> {
        let Some(this) = self.this.upgrade() else { return Ok(None) };
        let broken = || {
            Failure::new(ErrorCode::InternalError, "the tools of an upstream server could not be added to the catalog")
        };
        tokio::task::spawn_blocking(move || this.compare_now(seen, restored)).await.map_err(|_| broken())?.map(Some)
    }

    fn compare_now(&self, seen: ServerCatalog, restored: bool) -> Result<Vec<ToolEntry>, Failure> {
        let memory = &self.shared.memory;
        let known = memory.pins(&self.name)?;
        let is_first = known.is_none();
        let mut pins = known.unwrap_or_default();
        let before = pins.clone();
        let mut offers = KnownOffers {
            prompts: Arc::new(seen.prompts.clone()),
            resources: Arc::new(seen.resources.clone()),
            templates: Arc::new(seen.templates.clone()),
            hooks: seen.hooks.clone(),
            health: seen.health.clone(),
            looked: (!restored).then(Instant::now),
            protocol: Some(seen.protocol.clone()),
            ..KnownOffers::default()
        };
        let mut entries = Vec::new();
        let (mut names, mut texts) = (HashSet::new(), HashSet::new());
        for tool in &seen.tools {
            let original = name_of(tool).unwrap_or_default().to_owned();
            let leave_out = |offers: &mut KnownOffers, reason: String| {
                tracing::info!(server = self.name, tool = original, reason, "an upstream tool is left out");
                offers.left_out.push(OmittedTool { tool: original.chars().take(128).collect(), reason });
            };
            if self.terms.as_ref().is_some_and(|terms| !terms.declared.contains(&original)) {
                leave_out(&mut offers, format!("plugin must declare contracts.tools for: {original}"));
                continue;
            }
            // Parsed once, so that the compared, shown and called definition is the same.
            let definition = match Definition::of(tool) {
                Ok(definition) => definition,
                Err(reason) => {
                    leave_out(&mut offers, reason);
                    continue;
                }
            };
            if let Some(withheld) = self.hold_back(&definition, is_first, &mut pins) {
                offers.withheld.push(withheld);
                continue;
            }
            let defined = match define::define(self.source.clone(), &self.config, self.terms.as_ref(), &definition) {
                Ok(defined) => defined,
                Err(reason) => {
                    leave_out(&mut offers, reason);
                    continue;
                }
            };
            let CatalogTool { entry, original, extras, mirrored } = defined;
            let name = entry.name().clone();
            if self.shared.is_taken(name.as_str(), entry.source()) || !names.insert(name.clone()) {
                leave_out(&mut offers, format!("the name {name} is taken"));
                continue;
            }
            let kept = StoredTool {
                original: (self.without_prefix(&name) != Some(&original)).then(|| original.into()),
                mirrored: if mirrored.is_empty() { Arc::default() } else { mirrored.into() },
                extras: match extras {
                    none if none == ToolDetails::default() => None,
                    some => Some(shared(&mut texts, wire::text(&some).map_err(internal)?)),
                },
            };
            offers.tools.push((name, kept));
            entries.push(entry);
        }
        offers.left_out.extend(self.missing(&seen));
        if pins != before || is_first {
            memory.keep_pins(&self.name, &pins)?;
        }
        if !restored {
            let seen = ServerCatalog { at: Some(Timestamp::now()), ..seen };
            memory.keep_seen(&self.name, &seen)?;
        }
        offers.tools.sort_by(|(a, _), (b, _)| a.cmp(b));
        offers.tools.shrink_to_fit();
        *lock(&self.offers) = offers;
        Ok(entries)
    }

    /// Tools that a plugin declares and does not have.
    fn missing(&self, seen: &ServerCatalog) -> Vec<OmittedTool> {
        let declared = self.terms.iter().flat_map(|terms| &terms.expected);
        let missing = declared.filter(|name| !seen.tools.iter().any(|tool| name_of(tool) == Some(*name)));
        let reason = "declared in contracts.tools, but the plugin did not register it";
        missing.map(|name| OmittedTool { tool: name.clone(), reason: reason.to_owned() }).collect()
    }

    /// Whether a tool must be withheld until a person approves it. Stores its hash if no approval is needed.
    fn hold_back(&self, tool: &Definition, is_first: bool, pins: &mut Pins) -> Option<WithheldTool> {
        if self.config.pin == Pinning::Off {
            return None;
        }
        let text = tool.to_text();
        let hash = definition::hash_of(&text);
        let description: String = tool.text("description").unwrap_or_default().chars().take(2000).collect();
        let why = match pins.get(tool.name()) {
            Some(pin) if pin.definition.is_none() => WithheldReason::ApprovedInPart,
            Some(pin) if pin.hash == hash => return None,
            Some(_) => WithheldReason::Changed,
            None if self.config.pin == Pinning::All && !is_first => WithheldReason::New,
            None => {
                let (at, by) = (Timestamp::now(), "first seen".to_owned());
                pins.insert(tool.name().to_owned(), Pin { hash, at, by, description, definition: Some(text) });
                return None;
            }
        };
        let approved = pins.get(tool.name());
        Some(WithheldTool {
            tool: tool.name().to_owned(),
            why,
            description,
            approved_description: approved.map(|pin| pin.description.clone()),
            hash,
            diff: definition::diff(tool.name(), approved.and_then(|pin| pin.definition.as_deref()), &text),
            definition: text,
        })
    }

    /// Approves withheld definitions, each by the hash that was shown. Nothing is approved unless all definitions are
    /// still the same.
    pub(crate) async fn approve(&self, shown: &[ShownDefinition], by: &str) -> Result<Vec<Approved>, Failure> {
        if shown.is_empty() {
            let message = "name each definition to approve by its tool and the hash that was shown";
            return Err(Failure::new(ErrorCode::ValidationError, message)
                .suggest(format!("`toolyard mcp approve {}` shows the withheld tools.", self.name)));
        }
        let withheld = lock(&self.offers).withheld.clone();
        let mut chosen = Vec::with_capacity(shown.len());
        for definition in shown {
            chosen.push(self.still_shown(definition, &withheld)?.clone());
        }
        let memory = self.shared.memory.clone();
        let (name, by) = (self.name.clone(), by.to_owned());
        let approved =
            chosen.iter().map(|w| Approved { tool: w.tool.clone(), hash: w.hash.clone(), diff: w.diff.clone() });
        let approved: Vec<Approved> = approved.collect();
        let seen = tokio::task::spawn_blocking(move || {
            let mut pins = memory.pins(&name)?.unwrap_or_default();
            for w in chosen {
                let WithheldTool { tool, hash, description, definition, .. } = w;
                let (at, by) = (Timestamp::now(), by.clone());
                pins.insert(tool, Pin { hash, at, by, description, definition: Some(definition) });
            }
            memory.keep_pins(&name, &pins)?;
            memory.seen(&name)
        })
        .await
        .map_err(|_| Failure::new(ErrorCode::InternalError, "the approval could not be kept"))??;
        if let Some(seen) = seen {
            self.adopt(seen, true).await?;
        }
        Ok(approved)
    }

    /// The definition that was shown, if it is still the one that is held back.
    fn still_shown<'a>(
        &self,
        shown: &ShownDefinition,
        withheld: &'a [WithheldTool],
    ) -> Result<&'a WithheldTool, Failure> {
        let mut of_tool = withheld.iter().filter(|w| w.tool == shown.tool).peekable();
        let Some(current) = of_tool.peek().copied() else {
            let tool: String = shown.tool.chars().take(128).collect();
            return Err(Failure::new(ErrorCode::NotFound, format!("{} has no withheld tool {tool:?}", self.name))
                .suggest("`toolyard mcp servers` lists the withheld tools."));
        };
        of_tool.find(|w| w.hash == shown.hash).ok_or_else(|| {
            let message = format!("the definition of {} is not the one that was shown", current.tool);
            Failure::new(ErrorCode::PreconditionFailed, message)
                .suggest(format!("Look at it with `toolyard mcp approve {}`, and approve the new hash.", self.name))
                .detail("tool", current.tool.as_str())
                .detail("shownHash", shown.hash.chars().take(128).collect::<String>())
                .detail("currentHash", current.hash.as_str())
                .detail("diff", current.diff.as_str())
        })
    }

    /// Hooks it registered, when last seen.
    pub(crate) fn hooks(&self) -> Vec<HookInterest> {
        lock(&self.offers).hooks.clone()
    }

    /// Stores the health that the server reports.
    pub(crate) fn note_health(&self, health: Value) {
        lock(&self.offers).health = health;
    }

    /// A tool's name as the server most likely has it.
    fn without_prefix<'a>(&self, name: &'a ToolName) -> Option<&'a str> {
        match &self.terms {
            Some(_) => Some(name.as_str()),
            None => name.as_str().strip_prefix(&*self.config.prefix(&self.name)),
        }
    }

    /// A tool by its name in the catalog.
    pub(crate) fn known(&self, name: &str) -> Option<CallableTool> {
        let offers = lock(&self.offers);
        let at = offers.tools.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        let (name, kept) = offers.tools.get(at)?;
        let original = kept.original.as_deref().or_else(|| self.without_prefix(name))?;
        let StoredTool { mirrored, extras, .. } = kept;
        Some(CallableTool { original: original.to_owned(), mirrored: mirrored.clone(), extras: extras.clone() })
    }

    /// Lists, as last seen. Old ones are asked for again, for the next time.
    pub(crate) fn prompts(&self) -> Arc<Vec<ForwardedPrompt>> {
        self.refresh_if_old();
        lock(&self.offers).prompts.clone()
    }
    pub(crate) fn resources(&self) -> (Arc<Vec<ForwardedResource>>, Arc<Vec<ForwardedTemplate>>) {
        self.refresh_if_old();
        let offers = lock(&self.offers);
        (offers.resources.clone(), offers.templates.clone())
    }

    fn refresh_if_old(&self) {
        let old = lock(&self.offers).looked.is_some_and(|at| at.elapsed() > LISTS_FRESH);
        if old {
            self.refresh();
        }
    }

    /// Schedules one refresh of what a running server offers.
    pub(super) fn refresh(&self) {
        if self.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = self.this.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SETTLE).await;
            let Some(upstream) = this.upgrade() else { return };
            upstream.refreshing.store(false, Ordering::Release);
            let Some(live) = upstream.running() else { return };
            let (before_prompts, before_resources) = {
                let offers = lock(&upstream.offers);
                (offers.prompts.clone(), offers.resources.clone())
            };
            let looked = tokio::time::timeout(upstream.config.start_timeout(), live.look()).await;
            match looked {
                Ok(Ok(seen)) => {
                    let changed = [
                        (seen.prompts != *before_prompts, Change::Prompts),
                        (seen.resources != *before_resources, Change::Resources),
                    ];
                    if let Err(failure) = upstream.adopt(seen, false).await {
                        tracing::warn!(server = upstream.name, %failure, "changed tools could not be taken in");
                    }
                    for (_, change) in changed.into_iter().filter(|(changed, _)| *changed) {
                        upstream.shared.tell(change);
                    }
                }
                Ok(Err(error)) => {
                    let error = RpcError::from(error).message;
                    tracing::warn!(server = upstream.name, error, "a changed list could not be read");
                }
                Err(_) => tracing::warn!(server = upstream.name, "a changed list did not come in time"),
            }
        });
    }
}

fn internal(error: RpcError) -> Failure {
    Failure::new(ErrorCode::InternalError, error.message)
}

/// One copy of each text.
fn shared(texts: &mut HashSet<Arc<str>>, text: String) -> Arc<str> {
    match texts.get(text.as_str()) {
        Some(there) => there.clone(),
        None => {
            let text: Arc<str> = text.into();
            texts.insert(text.clone());
            text
        }
    }
}
