//! Splits a command line into simple commands. It understands less than a shell: what it does not understand is an
//! error, and the caller counts the command as one that destroys.

/// One word of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// The text, as far as it is known.
    pub(super) text: String,
    /// Part of it is only known when the command runs: a variable or the output of a command.
    pub(super) is_open: bool,
    /// Part of it was quoted, so it is no keyword and no assignment.
    pub(super) is_quoted: bool,
}

/// A part of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A word.
    Word(Word),
    /// Something that ends a simple command.
    End,
    /// What follows is a file that is written.
    WriteTo,
    /// What follows is a file that is read.
    ReadFrom,
}

/// A command line in parts, and the command lines inside of it (`$(...)`, backquotes).
#[derive(Debug, Default)]
pub(super) struct Lexed {
    pub(super) tokens: Vec<Token>,
    pub(super) inner: Vec<String>,
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Splits a command line.
pub(super) fn lex(line: &str) -> Result<Lexed, &'static str> {
    let mut lexed = Lexed::default();
    let mut word: Option<Word> = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => lexed.close(&mut word),
            '\n' | ';' | '|' | '(' | ')' => {
                lexed.close(&mut word);
                lexed.tokens.push(Token::End);
                if c == ';' && chars.peek() == Some(&';') {
                    return Err("a case statement");
                }
            }
            '&' => {
                lexed.close(&mut word);
                if chars.peek() == Some(&'>') {
                    redirect(&mut chars, '>', &mut lexed)?;
                } else {
                    lexed.tokens.push(Token::End);
                }
            }
            '>' | '<' => {
                // A number right before a redirection is a descriptor, not an argument.
                if !word.as_ref().is_some_and(|w| !w.is_quoted && w.text.bytes().all(|b| b.is_ascii_digit())) {
                    lexed.close(&mut word);
                }
                word = None;
                redirect_from(c, &mut chars, &mut lexed)?;
            }
            '#' if word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            '\'' => quoted(&mut chars, word.get_or_insert_default())?,
            '"' => double_quoted(&mut chars, word.get_or_insert_default(), &mut lexed.inner)?,
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(c) => {
                    let word = word.get_or_insert_default();
                    word.text.push(c);
                    word.is_quoted = true;
                }
                None => return Err("a backslash at the end"),
            },
            '$' => dollar(&mut chars, word.get_or_insert_default(), &mut lexed.inner)?,
            '`' => backquoted(&mut chars, word.get_or_insert_default(), &mut lexed.inner)?,
            c if c.is_control() => return Err("a control character"),
            c => word.get_or_insert_default().text.push(c),
        }
    }
    lexed.close(&mut word);
    Ok(lexed)
}

impl Lexed {
    fn close(&mut self, word: &mut Option<Word>) {
        self.tokens.extend(word.take().map(Token::Word));
    }
}

fn redirect_from(c: char, chars: &mut Chars<'_>, lexed: &mut Lexed) -> Result<(), &'static str> {
    if c == '>' {
        return match chars.peek() {
            Some('(') => Err("a process substitution"),
            _ => after_write(chars, lexed),
        };
    }
    match chars.peek() {
        Some('<') => Err("a here-document"),
        Some('(') => Err("a process substitution"),
        Some('>') => {
            chars.next();
            lexed.tokens.push(Token::WriteTo);
            Ok(())
        }
        Some('&') => descriptor(chars),
        _ => {
            lexed.tokens.push(Token::ReadFrom);
            Ok(())
        }
    }
}

/// `&>` and `&>>`.
fn redirect(chars: &mut Chars<'_>, arrow: char, lexed: &mut Lexed) -> Result<(), &'static str> {
    chars.next_if_eq(&arrow);
    after_write(chars, lexed)
}

/// What follows a `>`.
fn after_write(chars: &mut Chars<'_>, lexed: &mut Lexed) -> Result<(), &'static str> {
    if chars.next_if(|c| matches!(c, '>' | '|')).is_none() && chars.peek() == Some(&'&') {
        return descriptor(chars);
    }
    lexed.tokens.push(Token::WriteTo);
    Ok(())
}

/// `>&1`: joins descriptors and names no file.
fn descriptor(chars: &mut Chars<'_>) -> Result<(), &'static str> {
    chars.next();
    match chars.next() {
        Some(c) if c.is_ascii_digit() || c == '-' => Ok(()),
        _ => Err("a redirection to something other than a descriptor"),
    }
}

fn quoted(chars: &mut Chars<'_>, word: &mut Word) -> Result<(), &'static str> {
    word.is_quoted = true;
    loop {
        match chars.next() {
            Some('\'') => return Ok(()),
            Some(c) => word.text.push(c),
            None => return Err("a quote that does not end"),
        }
    }
}

fn double_quoted(chars: &mut Chars<'_>, word: &mut Word, inner: &mut Vec<String>) -> Result<(), &'static str> {
    word.is_quoted = true;
    loop {
        match chars.next() {
            Some('"') => return Ok(()),
            Some('\\') => match chars.next() {
                Some('\n') => {}
                Some(c @ ('"' | '\\' | '$' | '`')) => word.text.push(c),
                Some(c) => word.text.extend(['\\', c]),
                None => return Err("a quote that does not end"),
            },
            Some('$') => dollar(chars, word, inner)?,
            Some('`') => backquoted(chars, word, inner)?,
            Some(c) => word.text.push(c),
            None => return Err("a quote that does not end"),
        }
    }
}

/// A variable, or a command whose output is used.
fn dollar(chars: &mut Chars<'_>, word: &mut Word, inner: &mut Vec<String>) -> Result<(), &'static str> {
    match chars.peek() {
        Some('(') => {
            chars.next();
            if chars.peek() == Some(&'(') {
                return Err("arithmetic");
            }
            word.is_open = true;
            inner.push(until_closed(chars)?);
        }
        Some('{') => {
            word.is_open = true;
            chars.next();
            // Plain names only: an expansion can assign, and can hold other commands.
            for c in chars.by_ref() {
                match c {
                    '}' => return Ok(()),
                    c if c.is_ascii_alphanumeric() || c == '_' => {}
                    _ => return Err("an expansion of a variable"),
                }
            }
            return Err("a variable that does not end");
        }
        Some('\'' | '"') => return Err("a quote with escapes"),
        Some(c) if c.is_ascii_alphanumeric() || matches!(c, '_' | '?' | '@' | '*' | '#' | '$' | '!' | '-') => {
            word.is_open = true;
            if chars.next_if(|c| !c.is_ascii_alphanumeric() && *c != '_').is_none() {
                while chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_').is_some() {}
            }
        }
        _ => word.text.push('$'),
    }
    Ok(())
}

fn backquoted(chars: &mut Chars<'_>, word: &mut Word, inner: &mut Vec<String>) -> Result<(), &'static str> {
    word.is_open = true;
    let mut text = String::new();
    loop {
        match chars.next() {
            Some('`') => {
                inner.push(text);
                return Ok(());
            }
            Some('\\') => return Err("an escape inside backquotes"),
            Some(c) => text.push(c),
            None => return Err("a backquote that does not end"),
        }
    }
}

/// The text up to the parenthesis that closes `$(`.
fn until_closed(chars: &mut Chars<'_>) -> Result<String, &'static str> {
    let (mut text, mut depth) = (String::new(), 1_usize);
    let mut quote = None;
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, '(') => depth += 1,
            (None, ')') => {
                depth -= 1;
                if depth == 0 {
                    return Ok(text);
                }
            }
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') => {
                text.push(c);
                text.extend(chars.next());
                continue;
            }
            _ => {}
        }
        text.push(c);
    }
    Err("a command in parentheses that does not end")
}
