//! A conversation as a tree: editing a message or asking for another answer starts a branch, and
//! nothing is lost. Plain data; knows no model, and of templates only that they render messages.
//!
//! ```text
//!  system ── user ─┬─ assistant ── user' ── assistant
//!                  └─ assistant (regenerated) ── user        ← active path
//! ```

use super::message::{Message, Role};
use crate::text::{ChatTemplate, RenderedPrompt, TextError, Tokenizer};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Names a message within its session, for as long as the session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(usize);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Node {
    #[serde(flatten)]
    message: Message,
    /// Always an earlier node, so the nodes form a forest whatever file they came from.
    parent: Option<MessageId>,
}

/// Why a session cannot do as asked, or cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SessionError {
    /// There is no such message.
    #[error("message {0} does not exist in this session")]
    NoSuchMessage(usize),
    /// Only answers can be generated again.
    #[error("message {0} is not an answer, so there is nothing to generate again")]
    NotAnAnswer(usize),
    /// The saved tree is not one.
    #[error("message {0} of the saved session follows message {1}, which is not before it")]
    BrokenTree(usize, usize),
}

/// A conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Saved")]
pub struct ChatSession {
    nodes: Vec<Node>,
    active: Option<MessageId>,
}

impl ChatSession {
    /// An empty conversation.
    pub fn new() -> Self {
        Self::default()
    }

    /// A conversation that opens with instructions.
    pub fn with_system(content: impl Into<String>) -> Self {
        let mut session = Self::new();
        session.push(Message::system(content));
        session
    }

    /// Adds a message to the end of the active path.
    pub fn push(&mut self, message: Message) -> MessageId {
        self.add(message, self.active)
    }

    /// Lengthens a message, as an answer does while it is generated.
    ///
    /// # Errors
    /// [`SessionError::NoSuchMessage`].
    pub fn append(&mut self, id: MessageId, text: &str) -> Result<(), SessionError> {
        let node = self.nodes.get_mut(id.0);
        let node = node.ok_or(SessionError::NoSuchMessage(id.0))?;
        node.message.content.push_str(text);
        Ok(())
    }

    /// Puts another text in a message's place: a new message beside it, which ends the active path.
    /// What followed the old one stays on its branch.
    ///
    /// # Errors
    /// [`SessionError::NoSuchMessage`].
    pub fn edit(
        &mut self,
        id: MessageId,
        content: impl Into<String>,
    ) -> Result<MessageId, SessionError> {
        let node = self.node(id)?;
        let (role, parent) = (node.message.role, node.parent);
        Ok(self.add(Message::new(role, content), parent))
    }

    /// Ends the active path before an answer, so that the next message pushed stands beside it.
    ///
    /// # Errors
    /// [`SessionError::NoSuchMessage`], and [`SessionError::NotAnAnswer`] for anything but an
    /// assistant's message.
    pub fn regenerate(&mut self, id: MessageId) -> Result<(), SessionError> {
        let node = self.node(id)?;
        if node.message.role != Role::Assistant {
            return Err(SessionError::NotAnAnswer(id.0));
        }
        self.active = node.parent;
        Ok(())
    }

    /// Leads the active path through a message, and on along the newest branch.
    ///
    /// # Errors
    /// [`SessionError::NoSuchMessage`].
    pub fn select(&mut self, id: MessageId) -> Result<(), SessionError> {
        self.node(id)?;
        let mut leaf = id;
        while let Some(child) = self.children(Some(leaf)).last() {
            leaf = child;
        }
        self.active = Some(leaf);
        Ok(())
    }

    /// One message.
    pub fn get(&self, id: MessageId) -> Option<&Message> {
        Some(&self.nodes.get(id.0)?.message)
    }

    /// The message and those that stand in its place on other branches, oldest first.
    pub fn siblings(&self, id: MessageId) -> Vec<MessageId> {
        match self.nodes.get(id.0) {
            Some(node) => self.children(node.parent).collect(),
            None => Vec::new(),
        }
    }

    /// The active path by id, from the first message on.
    pub fn active_ids(&self) -> Vec<MessageId> {
        let parent = |id: &MessageId| self.nodes[id.0].parent;
        let mut path: Vec<_> = std::iter::successors(self.active, parent).collect();
        path.reverse();
        path
    }

    /// The active path, from the first message on: what a chat template renders.
    pub fn active_messages(&self) -> Vec<&Message> {
        let ids = self.active_ids().into_iter();
        ids.map(|id| &self.nodes[id.0].message).collect()
    }

    /// The prompt that asks for the next answer on the active path.
    ///
    /// # Errors
    /// The template's, such as for two messages of the person in a row.
    pub fn render(
        &self,
        template: &ChatTemplate,
        tokenizer: &Tokenizer,
    ) -> Result<RenderedPrompt, TextError> {
        let extra = serde_json::Map::new();
        template.render_prompt(&self.active_messages(), true, &extra, tokenizer)
    }

    fn add(&mut self, message: Message, parent: Option<MessageId>) -> MessageId {
        let id = MessageId(self.nodes.len());
        self.nodes.push(Node { message, parent });
        self.active = Some(id);
        id
    }

    fn node(&self, id: MessageId) -> Result<&Node, SessionError> {
        let node = self.nodes.get(id.0);
        node.ok_or(SessionError::NoSuchMessage(id.0))
    }

    fn children(&self, parent: Option<MessageId>) -> impl Iterator<Item = MessageId> {
        let ids = (0..self.nodes.len()).map(MessageId);
        ids.filter(move |id| self.nodes[id.0].parent == parent)
    }
}

/// A session as it is stored, before anybody has checked it.
#[derive(Deserialize)]
struct Saved {
    nodes: Vec<Node>,
    active: Option<MessageId>,
}

impl TryFrom<Saved> for ChatSession {
    type Error = SessionError;

    fn try_from(Saved { nodes, active }: Saved) -> Result<Self, SessionError> {
        for (index, node) in nodes.iter().enumerate() {
            if let Some(MessageId(parent)) = node.parent
                && parent >= index
            {
                return Err(SessionError::BrokenTree(index, parent));
            }
        }
        match active {
            Some(MessageId(id)) if id >= nodes.len() => Err(SessionError::NoSuchMessage(id)),
            _ => Ok(Self { nodes, active }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(session: &ChatSession) -> Vec<&str> {
        let messages = session.active_messages().into_iter();
        messages.map(|m| m.content.as_str()).collect()
    }

    #[test]
    fn editing_branches_and_keeps_what_was() {
        let mut s = ChatSession::with_system("be brief");
        let question = s.push(Message::user("Hi"));
        let answer = s.push(Message::assistant(""));
        s.append(answer, "Hel").unwrap();
        s.append(answer, "lo").unwrap();
        assert_eq!(path(&s), ["be brief", "Hi", "Hello"]);
        let edited = s.edit(question, "Bye").unwrap();
        assert_eq!(path(&s), ["be brief", "Bye"]);
        assert_eq!(s.get(edited).unwrap().role, Role::User);
        s.push(Message::assistant("Ciao"));
        assert_eq!(s.siblings(question), [question, edited]);
        s.select(question).unwrap();
        assert_eq!(path(&s), ["be brief", "Hi", "Hello"]);
        assert_eq!(*s.active_ids().last().unwrap(), answer);
    }

    #[test]
    fn regenerating_puts_the_next_answer_beside_the_last() {
        let mut s = ChatSession::new();
        let question = s.push(Message::user("Hi"));
        let first = s.push(Message::assistant("one"));
        s.push(Message::user("more"));
        assert_eq!(s.regenerate(question), Err(SessionError::NotAnAnswer(0)));
        s.regenerate(first).unwrap();
        assert_eq!(path(&s), ["Hi"]);
        let second = s.push(Message::assistant("two"));
        assert_eq!(path(&s), ["Hi", "two"]);
        assert_eq!(s.siblings(second), [first, second]);
        s.select(first).unwrap();
        assert_eq!(path(&s), ["Hi", "one", "more"]);
    }

    #[test]
    fn the_first_message_can_be_edited_too() {
        let mut s = ChatSession::new();
        let hi = s.push(Message::user("Hi"));
        s.push(Message::assistant("Hello"));
        let ho = s.edit(hi, "Ho").unwrap();
        assert_eq!(path(&s), ["Ho"]);
        assert_eq!(s.siblings(ho), [hi, ho]);
        s.select(hi).unwrap();
        assert_eq!(path(&s), ["Hi", "Hello"]);
    }

    #[test]
    fn the_template_sees_the_active_path_alone() {
        let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}\
                      {% if add_generation_prompt %}<assistant>{% endif %}";
        let template = ChatTemplate::new(source, None, None, None).unwrap();
        let mut s = ChatSession::with_system("be brief");
        let hi = s.push(Message::user("Hi"));
        s.push(Message::assistant("Hello"));
        s.edit(hi, "Ho").unwrap();
        let json = include_bytes!("../../../tests/golden/tokenizer/tokenizer.json");
        let tokenizer = Tokenizer::from_json(json, None, None).unwrap();
        let prompt = s.render(&template, &tokenizer).unwrap();
        assert_eq!(prompt, "<system>be brief<user>Ho<assistant>".into());
    }

    #[test]
    fn ids_of_other_sessions_are_refused() {
        let (mut s, stray) = (ChatSession::new(), MessageId(4));
        let none = SessionError::NoSuchMessage(4);
        assert_eq!(s.append(stray, "x"), Err(none.clone()));
        assert_eq!(s.edit(stray, "x"), Err(none.clone()));
        assert_eq!(s.regenerate(stray), Err(none.clone()));
        assert_eq!(s.select(stray), Err(none));
        assert_eq!(s.siblings(stray), []);
        assert_eq!(s.get(stray), None);
    }

    #[test]
    fn saved_sessions_come_back_and_broken_ones_do_not() {
        let mut s = ChatSession::with_system("be brief");
        let hi = s.push(Message::user("Hi"));
        s.edit(hi, "Ho").unwrap();
        let json = serde_json::to_string(&s).unwrap();
        assert_eq!(serde_json::from_str::<ChatSession>(&json).unwrap(), s);
        let broken = [
            r#"{"nodes":[{"role":"user","content":"","parent":0}],"active":0}"#,
            r#"{"nodes":[{"role":"user","content":"","parent":null}],"active":1}"#,
        ];
        for json in broken {
            assert!(serde_json::from_str::<ChatSession>(json).is_err(), "{json}");
        }
    }
}
