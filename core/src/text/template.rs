//! Chat templates: from messages to the text a model was trained on. Owns the environment templates
//! expect (that of transformers); knows no conversation, only what serialises as messages do, and of
//! tokenizers only which texts are special.

use std::fmt;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, Value};
use serde::Serialize;
use serde_json::Map;

use super::literal::Marks;
use super::{RenderedPrompt, TextError, Tokenizer, template_python, template_tags};
use crate::config::TextAssets;

/// What a template may spend: about one a step, one for 64 bytes it makes and one for a value it
/// puts into another, which bounds its time and its memory (32 MB of text).
const FUEL: u64 = 500_000;
/// What it may spend besides for each byte of its messages: some templates copy all they have
/// gathered with every message.
const FUEL_PER_BYTE: u64 = 8;
/// Deepest nesting of calls and loops; a call of a macro counts some.
const MAX_RECURSION: usize = 200;
/// Longest line of a template taken, bytes: the library counts columns in 16 bits.
const MAX_LINE: usize = u16::MAX as usize - 1;
/// Longest template taken, bytes.
const MAX_SOURCE: usize = 1 << 20;

/// Formats the present time, as Python's `strftime` does. The host's, as core has no clock;
/// [`CivilTime`](super::strftime::CivilTime) does the formatting.
pub type StrftimeNow = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// A model's chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

/// What a template says when it calls `raise_exception`.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

impl ChatTemplate {
    /// The template of a model's files.
    ///
    /// # Errors
    /// [`TextError::NoTemplate`] where there is none, [`TextError::TemplateSyntax`] where it is
    /// none.
    pub fn from_assets(assets: &TextAssets, now: Option<StrftimeNow>) -> Result<Self, TextError> {
        let source = assets.chat_template.as_ref().ok_or(TextError::NoTemplate)?;
        Self::new(
            source,
            assets.bos_token.clone(),
            assets.eos_token.clone(),
            now,
        )
    }

    /// A template from its source. Without `now`, a template that asks for the date fails.
    ///
    /// # Errors
    /// [`TextError::TemplateSyntax`].
    pub fn new(
        source: &str,
        bos_token: Option<String>,
        eos_token: Option<String>,
        now: Option<StrftimeNow>,
    ) -> Result<Self, TextError> {
        if source.len() > MAX_SOURCE {
            return Err(TextError::TemplateSyntax(format!(
                "it is {} bytes long, at most {MAX_SOURCE} are taken",
                source.len()
            )));
        }
        let adapted = template_tags::adapt(source).map_err(TextError::TemplateSyntax)?;
        if let Some((line, _)) = (1..)
            .zip(adapted.split('\n'))
            .find(|(_, l)| l.len() > MAX_LINE)
        {
            return Err(TextError::TemplateSyntax(format!(
                "a line has more than {MAX_LINE} bytes, which is not supported (line {line})"
            )));
        }
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|e| TextError::TemplateSyntax(describe(&e)))?;
        environment.set_syntax(syntax);
        environment.set_recursion_limit(MAX_RECURSION);
        template_python::install(&mut environment);
        environment.add_function("raise_exception", |message: String| {
            let error = minijinja::Error::new(ErrorKind::InvalidOperation, message.clone());
            Err::<Value, _>(error.with_source(Raised(message)))
        });
        environment.add_function("strftime_now", move |format: String| match &now {
            Some(now) => Ok(now(&format)),
            None => Err(minijinja::Error::new(
                ErrorKind::InvalidOperation,
                "it asks for the date, and none was given",
            )),
        });
        let added = environment.add_template_owned("chat", adapted);
        added.map_err(|e| TextError::TemplateSyntax(describe(&e)))?;
        Ok(Self {
            environment,
            source: source.to_owned(),
            bos_token,
            eos_token,
        })
    }

    /// The template as it is written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The prompt for a conversation.
    ///
    /// `messages` serialises to a list of `{"role": …, "content": …}`; `add_generation_prompt` opens
    /// the answer; `extra` are further variables, such as `tools`.
    ///
    /// # Errors
    /// [`TextError::TemplateRefused`] where the template raises an exception,
    /// [`TextError::TemplateFailed`] where it fails or does not come to an end.
    pub fn render<M: Serialize + ?Sized>(
        &self,
        messages: &M,
        add_generation_prompt: bool,
        extra: &Map<String, serde_json::Value>,
    ) -> Result<String, TextError> {
        self.render_json(to_json_value(messages)?, add_generation_prompt, extra)
    }

    /// The prompt for a conversation, as [`render`](Self::render), for this tokenizer: special tokens
    /// that messages or `extra` spell are marked as text, so that nobody ends a turn by writing so.
    ///
    /// # Errors
    /// As [`render`](Self::render), and the tokenizer's.
    pub fn render_prompt<M: Serialize + ?Sized>(
        &self,
        messages: &M,
        add_generation_prompt: bool,
        extra: &Map<String, serde_json::Value>,
        tokenizer: &Tokenizer,
    ) -> Result<RenderedPrompt, TextError> {
        let specials = tokenizer.special_texts()?;
        let messages = to_json_value(messages)?;
        let extra = serde_json::Value::Object(extra.clone());
        if !specials.occur_in(&messages) && !specials.occur_in(&extra) {
            let text = self.render_json(messages, add_generation_prompt, &into_map(extra))?;
            return Ok(text.into());
        }
        let marks = Marks::unlike(&self.source, &[&messages, &extra])?;
        let messages = marks.mark(messages, specials);
        let extra = into_map(marks.mark(extra, specials));
        let marked = self.render_json(messages, add_generation_prompt, &extra)?;
        Ok(marks.take(&marked, specials))
    }

    fn render_json(
        &self,
        messages: serde_json::Value,
        add_generation_prompt: bool,
        extra: &Map<String, serde_json::Value>,
    ) -> Result<String, TextError> {
        let mut context: Map<String, serde_json::Value> = Map::new();
        // Templates ask whether these are none rather than whether they are defined.
        context.insert("tools".to_owned(), serde_json::Value::Null);
        context.insert("documents".to_owned(), serde_json::Value::Null);
        for (name, token) in [
            ("bos_token", &self.bos_token),
            ("eos_token", &self.eos_token),
        ] {
            if let Some(token) = token {
                context.insert(name.to_owned(), token.clone().into());
            }
        }
        context.extend(extra.clone());
        context.insert(
            "add_generation_prompt".to_owned(),
            add_generation_prompt.into(),
        );
        context.insert("messages".to_owned(), messages);

        let bytes: u64 = context.values().map(text_bytes).sum();
        let mut environment = self.environment.clone();
        let fuel = FUEL.saturating_add(bytes.saturating_mul(FUEL_PER_BYTE));
        environment.set_fuel(Some(fuel));
        let template = environment.get_template("chat");
        let template = template.map_err(|e| TextError::TemplateSyntax(describe(&e)))?;
        template.render(Serde(context)).map_err(|e| explain(&e))
    }
}

/// Bytes of all texts in a value.
fn text_bytes(value: &serde_json::Value) -> u64 {
    match value {
        serde_json::Value::String(text) => text.len() as u64,
        serde_json::Value::Array(items) => items.iter().map(text_bytes).sum(),
        serde_json::Value::Object(fields) => fields.values().map(text_bytes).sum(),
        _ => 0,
    }
}

fn into_map(value: serde_json::Value) -> Map<String, serde_json::Value> {
    match value {
        serde_json::Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn to_json_value<M: Serialize + ?Sized>(messages: &M) -> Result<serde_json::Value, TextError> {
    serde_json::to_value(messages)
        .map_err(|e| TextError::TemplateFailed(format!("the messages: {e}")))
}

fn explain(error: &minijinja::Error) -> TextError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = source {
        if let Some(Raised(message)) = e.downcast_ref() {
            return TextError::TemplateRefused(message.clone());
        }
        source = e.source();
    }
    TextError::TemplateFailed(describe(error))
}

/// Kind, words and place, without the name this file gave the template.
fn describe(error: &minijinja::Error) -> String {
    let what = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    let cause = std::error::Error::source(error);
    let cause = cause.map_or_else(String::new, |source| format!(": {source}"));
    match error.line() {
        Some(line) => format!("{what}{cause} (line {line})"),
        None => format!("{what}{cause}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(source: &str, extra: serde_json::Value) -> Result<String, TextError> {
        let template = ChatTemplate::new(source, Some("<s>".into()), None, None)?;
        let messages = json!([{"role": "user", "content": "Hi <b>&</b>"}]);
        template.render(&messages, true, extra.as_object().unwrap())
    }

    #[test]
    fn the_environment_is_the_one_templates_expect() {
        let source = "{%- for m in messages %}\n    {% if m['role'].upper() == 'USER' %}\n{{ bos_token + m.content.strip() }}|{{ eos_token }}|{{ tools is none }}|{{ x }}|{{ tools }}\n    {%- endif %}\n{% break %}{% endfor %}\n{% generation %}g{% endgeneration -%}\n {{ x | tojson }}{{ y | tojson(indent=2) }}\n";
        let x = json!({"b": [1, 2.0, "é<"], "a": null, "c": {}});
        let text = render(source, json!({"x": true, "y": x})).unwrap();
        assert_eq!(
            text,
            "<s>Hi <b>&</b>||True|True|Nonegtrue{\n  \"b\": [\n    1,\n    2.0,\n    \"é<\"\n  ],\n  \"a\": null,\n  \"c\": {}\n}"
        );
        let text = render("{{ x | tojson }}", json!({"x": x})).unwrap();
        assert_eq!(text, r#"{"b": [1, 2.0, "é<"], "a": null, "c": {}}"#);
    }

    #[test]
    fn every_option_of_tojson_is_there() {
        let value = json!({"x": {"b": ["é😀\u{7f}\n"], "a": {"z": 1, "y": 2}}});
        let dumps = |options: &str| {
            render(&format!("{{{{ x | tojson({options}) }}}}"), value.clone()).unwrap()
        };
        assert_eq!(
            dumps("ensure_ascii=true, sort_keys=true"),
            r#"{"a": {"y": 2, "z": 1}, "b": ["\u00e9\ud83d\ude00\u007f\n"]}"#
        );
        assert_eq!(
            dumps("separators=(',', ':')"),
            "{\"b\":[\"é😀\u{7f}\\n\"],\"a\":{\"z\":1,\"y\":2}}"
        );
    }

    #[test]
    fn a_template_refuses_in_its_own_words() {
        let error = render("{{ raise_exception('Roles must alternate') }}", json!({}));
        assert!(matches!(error, Err(TextError::TemplateRefused(m)) if m == "Roles must alternate"));
        let error = render("{{ strftime_now('%Y') }}", json!({}))
            .unwrap_err()
            .to_string();
        assert!(error.contains("date"), "{error}");
        let error = render("{% if %}", json!({})).unwrap_err().to_string();
        assert!(
            error.contains("is no template") && error.contains("line 1"),
            "{error}"
        );
    }

    #[test]
    fn a_template_too_deep_for_the_stack_is_refused_and_one_just_allowed_compiles() {
        let of = |n: usize| {
            [
                format!("{{{{ 1{} }}}}", "+1".repeat(n / 2)),
                format!("{{{{ x{} }}}}", ".b".repeat(n / 2)),
                format!("{{{{ x{} }}}}", "()".repeat(n / 2)),
                format!("{{{{ 1{} }}}}", "|string".repeat(n / 20)),
                format!("{{{{ {}1 }}}}", "not ".repeat(n)),
                format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(n / 2)),
            ]
        };
        for source in of(1990) {
            let compiled = ChatTemplate::new(&source, None, None, None);
            assert!(compiled.is_ok(), "{:?}", compiled.err());
        }
        for source in of(100_000) {
            let refused = ChatTemplate::new(&source, None, None, None).err();
            let said = refused.unwrap().to_string();
            assert!(said.contains("not supported"), "{said}");
        }
    }

    #[test]
    fn a_template_that_does_not_end_is_stopped() {
        for source in [
            "{% for i in range(100000) %}{% for j in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}{% endfor %}",
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
            "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
            "{{ 'a' * 100000000000 }}",
            "{{ 'aaaaaaaaaa'.replace('a', 'b' * 1000000) | length }}{% for i in range(100000) %}{{ 'b' * 1000000 }}{% endfor %}",
        ] {
            assert!(
                matches!(render(source, json!({})), Err(TextError::TemplateFailed(_))),
                "{source}"
            );
        }
    }
}
