//! A streaming XML reader. It builds no tree, limits nesting, and replaces only the five predefined entities, so that
//! entity expansion attacks are impossible.

use super::{MAX_XML_DEPTH, ParseFailure};
use quick_xml::{
    Reader,
    events::{BytesStart, Event},
};

/// An XML event.
pub(super) enum Node<'a> {
    /// Start of an element. An empty element is followed by its end.
    Open(&'a str, Attributes<'a>),
    /// End of an element.
    Close(&'a str),
    /// Text.
    Text(&'a str),
}

/// An element's attributes.
pub(super) struct Attributes<'a>(&'a BytesStart<'a>);

impl Attributes<'_> {
    /// The value of an attribute, by local name.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        let found = self.0.attributes().flatten().find(|attribute| attribute.key.local_name().into_inner() == name)?;
        found.normalized_value(quick_xml::XmlVersion::Implicit1_0).ok().map(std::borrow::Cow::into_owned)
    }

    /// The values of all attributes with this local name, regardless of prefix.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let named = self.0.attributes().flatten().filter(|attribute| attribute.key.local_name().into_inner() == name);
        named
            .filter_map(|one| {
                one.normalized_value(quick_xml::XmlVersion::Implicit1_0).ok().map(std::borrow::Cow::into_owned)
            })
            .collect()
    }
}

/// Calls `on` with every event of a text, with local names.
pub(super) fn walk(text: &str, mut on: impl FnMut(Node<'_>)) -> Result<(), ParseFailure> {
    let mut reader = Reader::from_str(text);
    let mut depth = 0usize;
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                depth += 1;
                if depth > MAX_XML_DEPTH {
                    return Err(ParseFailure::new("its XML is nested too deeply"));
                }
                on(Node::Open(start.local_name().into_inner(), Attributes(&start)));
            }
            Ok(Event::Empty(start)) => {
                on(Node::Open(start.local_name().into_inner(), Attributes(&start)));
                on(Node::Close(start.local_name().into_inner()));
            }
            Ok(Event::End(end)) => {
                depth = depth.saturating_sub(1);
                on(Node::Close(end.local_name().into_inner()));
            }
            Ok(Event::Text(text)) => on(Node::Text(&text)),
            Ok(Event::CData(text)) => on(Node::Text(&text)),
            Ok(Event::GeneralRef(reference)) => match reference.resolve_char_ref() {
                Ok(Some(c)) => on(Node::Text(c.encode_utf8(&mut [0; 4]))),
                _ => {
                    if let Some(replacement) = quick_xml::escape::resolve_predefined_entity(&reference) {
                        on(Node::Text(replacement));
                    }
                }
            },
            Ok(Event::Eof) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(ParseFailure::new(format!("its XML is broken: {error}"))),
        }
    }
}
