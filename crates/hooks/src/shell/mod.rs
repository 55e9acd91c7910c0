//! The risk of a shell command, from its text. The rule: a command that the parser does not understand counts as
//! destructive. A command line is as dangerous as its most dangerous part.
//!
//! The text of a command is not its effect: a script that is allowed to run can do anything. The classification
//! prevents accidents; it is no protection against an attacker.

mod commands;
mod lex;

use crate::locations::{PathLocation, joined, location_of};
use lex::{Token, Word, lex};
use std::path::{Path, PathBuf};
use toolyard_catalog::native::NativeClass;

/// Commands inside commands are followed to this depth.
const MAX_DEPTH: usize = 6;
/// A longer command line is not judged.
const MAX_BYTES: usize = 64 << 10;
/// Variables that decide which program runs.
const STEERING: [&str; 8] = ["PATH", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "PS4", "PAGER", "EDITOR"];

/// The class of a command and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classification {
    /// The class.
    pub class: NativeClass,
    /// What decided, for a person.
    pub reason: String,
}

impl Classification {
    fn new(class: NativeClass, reason: impl Into<String>) -> Self {
        Self { class, reason: reason.into() }
    }

    fn unclear(what: impl std::fmt::Display) -> Self {
        Self::new(NativeClass::Destroy, format!("the command cannot be judged: {what}"))
    }

    fn raise(&mut self, other: Self) {
        if other.class > self.class {
            *self = other;
        }
    }
}

/// Where a command runs.
#[derive(Debug, Clone)]
struct CommandContext<'a> {
    root: &'a Path,
    /// Unknown after a change to a folder that is only known when the command runs.
    cwd: Option<PathBuf>,
    depth: usize,
}

/// Judges a command line that would run in `cwd`, in the project `root`.
pub fn classify(command: &str, root: &Path, cwd: &Path) -> Classification {
    line(command, &mut CommandContext { root, cwd: Some(cwd.to_owned()), depth: 0 })
}

fn line(command: &str, context: &mut CommandContext<'_>) -> Classification {
    if context.depth > MAX_DEPTH {
        return Classification::unclear("it is nested too deeply");
    }
    if command.len() > MAX_BYTES {
        return Classification::unclear("it is too long");
    }
    let lexed = match lex(command) {
        Ok(lexed) => lexed,
        Err(what) => return Classification::unclear(format_args!("it has {what}")),
    };
    let mut worst = Classification::new(NativeClass::Read, "it reads");
    context.depth += 1;
    for inner in &lexed.inner {
        worst.raise(line(inner, &mut context.clone()));
    }
    for simple in lexed.tokens.split(|token| *token == Token::End) {
        worst.raise(simple_command(simple, context));
    }
    context.depth -= 1;
    worst
}

/// One simple command with its redirections.
fn simple_command(tokens: &[Token], context: &mut CommandContext<'_>) -> Classification {
    let mut worst = Classification::new(NativeClass::Read, "it reads");
    let mut words = Vec::new();
    let mut tokens = tokens.iter();
    while let Some(token) = tokens.next() {
        match (token, token == &Token::WriteTo || token == &Token::ReadFrom) {
            (Token::Word(word), _) => words.push(word),
            (arrow, true) => match tokens.next() {
                Some(Token::Word(target)) if *arrow == Token::WriteTo => worst.raise(context.write(target)),
                Some(Token::Word(source)) => worst.raise(context.read(source)),
                _ => return Classification::unclear("a redirection names no file"),
            },
            _ => {}
        }
    }
    let mut words = words.as_slice();
    while let Some((first, rest)) = words.split_first() {
        let is_plain = !first.is_quoted && !first.is_open;
        match first.text.as_str() {
            "if" | "then" | "elif" | "else" | "while" | "until" | "do" | "!" | "{" | "time" if is_plain => words = rest,
            "fi" | "done" | "}" if is_plain => return worst,
            // The words of a loop are values, not commands.
            "for" if is_plain => return worst,
            "case" | "select" | "function" | "coproc" if is_plain => {
                return Classification::unclear(format_args!("it has the word {:?}", first.text));
            }
            _ => match assigned(first) {
                Some(name) if steers(first) => return Classification::unclear(format_args!("it sets {name}")),
                Some(_) => words = rest,
                None => break,
            },
        }
    }
    if let Some((program, arguments)) = words.split_first() {
        worst.raise(commands::classify(program, arguments, context));
    }
    worst
}

/// The name of a variable that a word assigns.
fn assigned(word: &Word) -> Option<&str> {
    let (name, _) = word.text.split_once('=')?;
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then_some(name)
}

/// Whether a word assigns a variable that decides which program runs.
fn steers(word: &Word) -> bool {
    assigned(word).is_some_and(|name| STEERING.contains(&name) || name.starts_with("LD_") || name.starts_with("GIT_"))
}

impl CommandContext<'_> {
    /// The location that a word names, if it is a path.
    fn location(&self, word: &Word) -> Option<PathLocation> {
        // Braces with a comma or two dots are several words.
        let is_many =
            !word.is_quoted && word.text.contains('{') && (word.text.contains(',') || word.text.contains(".."));
        if word.is_open || is_many {
            return None;
        }
        if word.text.starts_with('~') && !word.is_quoted {
            let is_hidden = word.text.contains("/.");
            return Some(if is_hidden { PathLocation::Private } else { PathLocation::Outside });
        }
        let cwd = self.cwd.as_deref()?;
        Some(location_of(self.root, &joined(cwd, Path::new(&word.text))))
    }

    /// A file that is written.
    fn write(&self, target: &Word) -> Classification {
        match self.location(target) {
            Some(PathLocation::Sink) => Classification::new(NativeClass::Read, "it reads"),
            Some(PathLocation::Inside) => {
                Classification::new(NativeClass::Shell, format!("it changes {}", target.text))
            }
            Some(PathLocation::Protected) => {
                Classification::new(NativeClass::Destroy, format!("it changes settings: {}", target.text))
            }
            Some(_) => {
                Classification::new(NativeClass::Leave, format!("it writes outside the project: {}", target.text))
            }
            None => Classification::new(NativeClass::Leave, "it writes to a path that is only known when it runs"),
        }
    }

    /// A file that is read.
    fn read(&self, source: &Word) -> Classification {
        match self.location(source) {
            Some(PathLocation::Private) => Classification::new(NativeClass::Leave, format!("it reads {}", source.text)),
            _ => Classification::new(NativeClass::Read, "it reads"),
        }
    }
}
