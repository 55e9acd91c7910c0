//! [`Writer`] creates summaries and memories. It tries the configured language model first, and falls back to
//! rule-based extraction with a notice.

use toolyard_recall::extract::{self, Memory, Message, Options, Summary};

/// Creates summaries and memories.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) model: Option<crate::sessions::model::Model>,
}

impl Writer {
    pub(crate) fn summary(&self, title: &str, messages: &[Message<'_>], notices: &mut Vec<String>) -> Summary {
        let extracted = extract::summarise(title, messages);
        let Some(model) = &self.model else { return extracted };
        match model.summary(messages) {
            Ok(better) => better,
            Err(why) => {
                notices.push(format!("the summary was extracted: {why}"));
                extracted
            }
        }
    }

    pub(crate) fn memories(
        &self,
        messages: &[Message<'_>],
        options: &Options,
        notices: &mut Vec<String>,
    ) -> Vec<Memory> {
        let Some(model) = &self.model else { return extract::memories(messages, options) };
        match model.memories(messages) {
            Ok(found) if !found.is_empty() => found,
            Ok(_) => extract::memories(messages, options),
            Err(why) => {
                notices.push(format!("memories were extracted by rules: {why}"));
                extract::memories(messages, options)
            }
        }
    }
}
