//! After a crash between `prepare` and the end of `execute`: checks each step of the recorded [`Commit`], and completes
//! the commit or reports that it was not started. This makes a write happen exactly once.

use crate::{
    change::{report_folder, report_move, report_put},
    commit::{Commit, Step, current_etag, inode_at, run_step},
    error::{VaultResult, etag_conflict, system},
    root::{Links, NodeKind},
    vault::Vault,
};
use rustix::io::Errno;
use toolyard_engine::{Failed, Intent, Reconciled};
use toolyard_protocol::{Effects, ErrorCode, Failure};

/// How far a step is.
#[derive(Debug, PartialEq)]
enum Progress {
    Done,
    Pending,
    /// The target has neither state: another program changed it.
    Foreign(Box<Failure>),
}

/// After a crash: completes the commit, or reports that it was not started. The caller holds every lock of the vault.
pub(crate) fn reconcile(vault: &Vault, intent: &Intent) -> Result<Reconciled, Failed> {
    let commit = Commit::from_intent(intent)?;
    let mut effects = Effects::default();
    let mut done = 0;
    let mut verdict = Progress::Done;
    for (index, step) in commit.steps.iter().enumerate() {
        verdict = progress(vault, step, &commit.steps[index + 1..])?;
        if verdict != Progress::Done {
            break;
        }
        report_step(&mut effects, step);
        done += 1;
    }
    match verdict {
        Progress::Done => {
            let output = commit.output(vault, effects);
            commit.remove_leftovers(vault);
            Ok(Reconciled::Done(output))
        }
        Progress::Foreign(failure) => {
            commit.remove_leftovers(vault);
            Ok(Reconciled::Conflict(Failed::after(*failure, effects)))
        }
        // A folder that was made (or was there already) changes nothing about the call itself, but the steps after
        // it are still to come; they can be done now as well as by a new call.
        Progress::Pending if done == 0 => {
            commit.remove_leftovers(vault);
            Ok(Reconciled::NotDone)
        }
        Progress::Pending => {
            let finished = commit.steps[done..].iter().try_for_each(|step| match progress(vault, step, &[])? {
                Progress::Done => {
                    report_step(&mut effects, step);
                    Ok(())
                }
                Progress::Pending => run_step(vault, step, &mut effects),
                Progress::Foreign(failure) => Err(*failure),
            });
            commit.remove_leftovers(vault);
            match finished {
                Ok(()) => Ok(Reconciled::Done(commit.output(vault, effects))),
                Err(failure) => Ok(Reconciled::Conflict(Failed::after(failure, effects))),
            }
        }
    }
}

fn report_step(effects: &mut Effects, step: &Step) {
    match step {
        Step::MakeFolder { path } => report_folder(effects, path),
        Step::Put { path, before, after, .. } => report_put(effects, path, before.clone(), after.clone()),
        Step::Move { from, to, kind, role, .. } => report_move(effects, from, to, *kind, *role),
        Step::Remove { path, kind, .. } => effects.deleted(path.as_str(), *kind, false),
    }
}

/// `later` are the steps that follow: a note that moves and is then rewritten shows the rewritten content.
fn progress(vault: &Vault, step: &Step, later: &[Step]) -> VaultResult<Progress> {
    let foreign = |failure: Failure| Ok(Progress::Foreign(Box::new(failure)));
    match step {
        Step::MakeFolder { path } => match vault.dir.meta(path, Links::Refuse) {
            Ok(Some(meta)) if meta.kind == NodeKind::Folder => Ok(Progress::Done),
            Ok(None) => Ok(Progress::Pending),
            Ok(Some(_)) => foreign(system("make the folder", path.as_str(), Errno::EXIST)),
            Err(errno) => foreign(system("make the folder", path.as_str(), errno)),
        },
        Step::Put { path, before, after, .. } => {
            let current = current_etag(vault, path)?;
            if current.as_ref() == Some(after) {
                return Ok(Progress::Done);
            }
            if current != *before {
                let expected = before.as_deref().unwrap_or("absent");
                return foreign(etag_conflict(path, expected, current.as_deref().unwrap_or("absent")));
            }
            Ok(Progress::Pending)
        }
        Step::Move { from, to, inode, via, .. } => {
            if inode_at(vault, via)? == Some(*inode) {
                return Ok(Progress::Pending);
            }
            let (at_from, at_to) = (inode_at(vault, from)?, inode_at(vault, to)?);
            let rewritten = || {
                later.iter().any(|step| match step {
                    Step::Put { path, after, .. } if path == to => {
                        current_etag(vault, to).is_ok_and(|e| e.as_ref() == Some(after))
                    }
                    _ => false,
                })
            };
            let same_name = from.folded() == to.folded() && at_from == at_to && at_to == Some(*inode);
            if same_name {
                let names = vault
                    .dir
                    .entries(to.parent().as_ref(), Links::Refuse)
                    .map_err(|e| system("list", to.as_str(), e))?;
                let renamed = names.iter().any(|e| e.name == to.name());
                return Ok(if renamed { Progress::Done } else { Progress::Pending });
            }
            if at_from.is_none() && (at_to == Some(*inode) || rewritten()) {
                return Ok(Progress::Done);
            }
            if at_from == Some(*inode) && at_to.is_none() {
                return Ok(Progress::Pending);
            }
            foreign(
                Failure::new(
                    ErrorCode::Conflict,
                    format!("neither {from} nor {to} is as the interrupted move left it"),
                )
                .detail("fromPath", from.as_str())
                .detail("toPath", to.as_str()),
            )
        }
        Step::Remove { path, inode, .. } => match inode_at(vault, path)? {
            None => Ok(Progress::Done),
            Some(found) if found == *inode => Ok(Progress::Pending),
            Some(_) => foreign(
                Failure::new(ErrorCode::Conflict, format!("{path} is another file now")).detail("path", path.as_str()),
            ),
        },
    }
}
