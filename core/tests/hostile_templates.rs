//! Chat templates that want the whole machine: each is refused in bounded time and memory, and none
//! takes the process down. One test a process, as it watches the allocator.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "support/memory_peak.rs"]
mod memory_peak;

use std::time::{Duration, Instant};

use memory_peak::bounded;
use serde_json::{Map, json};
use twoclock_core::text::{ChatTemplate, TextError};

fn render(source: &str) -> Result<String, TextError> {
    let template = ChatTemplate::new(source, None, None, None)?;
    let messages =
        json!([{"role": "user", "content": "Hello"}, {"role": "user", "content": "you"}]);
    template.render(&messages, true, &Map::new())
}

/// Does something to a namespace again and again, and prints what became of it.
fn looped(times: usize, body: &str) -> String {
    format!(
        "{{% set ns = namespace(s=[1], t='a') %}}{{% for i in range({times}) %}}{body}{{% endfor %}}{{{{ ns.s }}}}{{{{ ns.t }}}}"
    )
}

/// Templates to be refused.
fn greedy() -> Vec<(&'static str, String)> {
    vec![
        ("deep list", looped(100_000, "{% set ns.s = [ns.s] %}")),
        ("deep object", looped(100_000, "{% set ns.s = {'a': ns.s} %}")),
        ("deep tuple", looped(100_000, "{% set ns.s = (ns.s, 1) %}")),
        ("doubling list", looped(60, "{% set ns.s = ns.s + ns.s %}")),
        ("doubling list of lists", looped(60, "{% set ns.s = [ns.s, ns.s] %}")),
        ("list times", looped(60, "{% set ns.s = ns.s * 2 %}")),
        ("list growth", looped(100_000, "{% set ns.s = ns.s + [i] %}")),
        ("doubling text", looped(60, "{% set ns.t = ns.t + ns.t %}")),
        ("doubling ~", looped(60, "{% set ns.t = ns.t ~ ns.t %}")),
        ("slices", looped(100_000, "{% set ns.s = ns.s[0:] %}")),
        ("slices 2", looped(100_000, "{% set ns.s = ns.s[::-1] %}")),
        ("reversed", looped(100_000, "{% set ns.s = ns.s|reverse %}")),
        ("listed", looped(100_000, "{% set ns.s = ns.s|list %}")),
        ("mapped", looped(100_000, "{% set ns.s = ns.s|map('string') %}")),
        ("batched", looped(100_000, "{% set ns.s = ns.s|batch(1) %}")),
        ("sliced", looped(100_000, "{% set ns.s = ns.s|slice(1) %}")),
        ("items", looped(100_000, "{% set ns.s = {'a': ns.s}|items %}")),
        ("chained", looped(100_000, "{% set ns.s = ns.s|chain(ns.s) %}")),
        ("zipped", looped(100_000, "{% set ns.s = ns.s|zip(ns.s) %}")),
        ("dict", looped(100_000, "{% set ns.s = dict(a=ns.s) %}")),
        ("namespace in namespace", looped(100_000, "{% set ns.s = namespace(a=ns.s) %}")),
        ("namespace in itself", "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}".into()),
        ("namespace in a list in itself", "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}".into()),
        ("namespaces swapped", "{% set a = namespace() %}{% set b = namespace() %}{% for n in [a] %}{% set b.x = n %}{% endfor %}{% set a.x = b %}{{ a }}".into()),
        ("macro kept", "{% set ns = namespace() %}{% macro f() %}{{ ns }}{% endmacro %}{% set ns.f = f %}{{ ns }}".into()),
        ("sets", format!("{{% set s = [] %}}{}{{{{ s }}}}", "{% set s=[s] %}".repeat(60_000))),
        ("withs", format!("{}{{{{ s }}}}{}", "{% with s=[[[[[[[[[[s]]]]]]]]]] %}".repeat(100), "{% endwith %}".repeat(100))),
        ("fors", format!("{}{{{{ s }}}}{}", "{% for s in [[[[[[[[[[[[s]]]]]]]]]]]] %}".repeat(100), "{% endfor %}".repeat(100))),
        ("macro depth", "{% macro f(s) %}{{ f([[[[[[[[[[[[[[[s]]]]]]]]]]]]]]]) }}{% endmacro %}{{ f(1) }}".into()),
        ("macro depth printed", "{% macro f(s, n) %}{% if n %}{{ f([[[[[[[[[[[[[[[s]]]]]]]]]]]]]]], n - 1) }}{% else %}{{ s }}{% endif %}{% endmacro %}{% for n in range(100) %}{{ f(1, n) }}{% endfor %}".into()),
        ("recursive loop", "{% for s in [1] recursive %}{{ s }}{{ loop([[[[[[[[[[[[[[[s]]]]]]]]]]]]]]]) }}{% endfor %}".into()),
        ("macro tree", "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}".into()),
        ("macro doubling", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% else %}aaaaaaaaaaaaaaa{% endif %}{% endmacro %}{{ f(40) }}".into()),
        ("text times", "{{ 'a' * 1000000000 }}".into()),
        ("list literal times", "{{ [1] * 1000000000 }}".into()),
        ("range", "{{ range(1000000000) }}".into()),
        ("range listed", "{{ range(1000000000)|list }}".into()),
        ("ranges", "{% for a in range(99999) %}{% for b in range(99999) %}{{ range(99999)|list|length }}{% endfor %}{% endfor %}".into()),
        ("range sum", "{% for a in range(99999) %}{{ range(99999)|sum }}{% endfor %}".into()),
        ("range sort", "{% for a in range(99999) %}{{ range(99999)|sort|length }}{% endfor %}".into()),
        ("range compare", "{% for a in range(99999) %}{{ range(99999)|list == range(99999)|list }}{% endfor %}".into()),
        ("range in", "{% for a in range(99999) %}{{ -1 in range(99999) }}{% endfor %}".into()),
        ("indent", "{{ 'a\\nb'|indent(1000000000) }}".into()),
        ("indent first", "{{ 'a'|indent(1000000000, true) }}".into()),
        ("indent text", "{% set t = 'a' * 10000 %}{{ ('\\n' * 10000)|indent(t, true, blank=true)|length }}".into()),
        ("json separators", "{% set t = 'a' * 100000 %}{{ range(10000)|list|tojson(separators=[t, t]) }}".into()),
        ("format", "{{ '%1000000000d'|format(1) }}".into()),
        ("format precision", "{{ '%.1000000000f'|format(1.5) }}".into()),
        ("format method", "{{ '{:>1000000000}'.format(1) }}".into()),
        ("format method nested", "{{ '{:>{}}'.format(1, 1000000000) }}".into()),
        ("format method many", "{{ ('{:>99999}' * 9999).format(1) }}".into()),
        ("format many", "{% for a in range(99999) %}{{ ('%1000d' * 1000)|format(1) }}{% endfor %}".into()),
        ("replace", "{% set t = 'a' * 100000 %}{{ t.replace('a', t) }}".into()),
        ("replace empty", "{% set t = 'a' * 100000 %}{{ t|replace('', t) }}".into()),
        ("join", "{% set t = 'a' * 100000 %}{{ range(99999)|join(t) }}".into()),
        ("join method", "{% set t = 'a' * 100000 %}{{ t.join(range(99999)|map('string')|list) }}".into()),
        ("join method text", "{% set t = 'a' * 100000 %}{{ t.join(t) }}".into()),
        ("split", "{% set t = 'a ' * 1000000 %}{% for a in range(9999) %}{{ t.split()|length }}{% endfor %}".into()),
        ("splitlines", "{% set t = 'a\\n' * 1000000 %}{% for a in range(9999) %}{{ t.splitlines()|length }}{% endfor %}".into()),
        ("upper", "{% set t = 'ΐ' * 1000000 %}{% for a in range(9999) %}{{ t.upper()|length }}{% endfor %}".into()),
        ("upper kept", "{% set ns = namespace(t='ΐ' * 100) %}{% for a in range(9999) %}{% set ns.t = ns.t.upper() ~ ns.t.upper() %}{% endfor %}".into()),
        ("find", "{% set t = 'a' * 1000000 %}{% for a in range(9999) %}{{ t.find('b') }}{{ t.count('aa') }}{% endfor %}".into()),
        ("find quadratic", "{% set t = 'a' * 1000000 %}{% set u = 'a' * 500000 ~ 'b' %}{% for a in range(9999) %}{{ t.find(u) }}{{ u in t }}{% endfor %}".into()),
        ("escape", "{% set t = '<' * 1000000 %}{% for a in range(9999) %}{{ t|e|length }}{% endfor %}".into()),
        ("safe", "{% set t = '<' * 1000000 %}{% for a in range(9999) %}{% set u = t|safe + t %}{{ (t|safe + t)|length }}{% endfor %}".into()),
        ("json", "{% for a in range(9999) %}{{ range(99999)|list|tojson|length }}{% endfor %}".into()),
        ("raise", "{{ raise_exception('a' * 1000000000) }}".into()),
        ("raise long", "{{ raise_exception('a' * 10000000) }}".into()),
        ("include", "{% include 'chat' %}{% include 'chat' %}".into()),
        ("import", "{% import 'chat' as c %}{% import 'chat' as d %}".into()),
        ("extends", "{% extends 'chat' %}".into()),
        ("blocks", "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}".into()),
        ("urlencode", "{% set t = '<' * 1000000 %}{% for a in range(9999) %}{{ t|urlencode|length }}{% endfor %}".into()),
        ("pprint", "{% for a in range(9999) %}{{ range(99999)|list|pprint|length }}{% endfor %}".into()),
        ("groupby", "{% for a in range(9999) %}{{ range(99999)|groupby('a')|length }}{% endfor %}".into()),
        ("unique", "{% for a in range(9999) %}{{ range(99999)|unique|list|length }}{% endfor %}".into()),
        ("capture", "{% set t %}{% for a in range(99999) %}{{ 'a' * 10000 }}{% endfor %}{% endset %}{{ t }}".into()),
        ("filter block", "{% filter upper %}{% for a in range(99999) %}{{ 'a' * 10000 }}{% endfor %}{% endfilter %}".into()),
        ("brackets", "{{ ".to_owned() + &"(".repeat(100_000)),
        ("open", "{{".repeat(300_000)),
        ("percents", "{%".repeat(300_000)),
        ("comment not closed on a long line", "{#".repeat(100_000)),
        ("raw not closed on a long line", "{% raw %}".to_owned() + &"x".repeat(100_000)),
        ("number without end", format!("{{{{ {} }}}}", "9".repeat(100_000))),
        ("long name", format!("{{{{ {} }}}}", "a".repeat(900_000))),
        ("blocks deep", "{% if 1 %}".repeat(50_000)),
        (
            "debug",
            "{% for a in range(9999) %}{{ debug()|length }}{% endfor %}".into(),
        ),
    ]
}

/// Templates that only look so.
fn modest() -> Vec<(&'static str, String)> {
    vec![
        (
            "json indent",
            "{{ range(10000)|list|tojson(indent=1000000000) }}".into(),
        ),
        (
            "long names",
            format!("{{{{ {} }}}}\n", "a".repeat(60_000)).repeat(17),
        ),
        (
            "strings",
            format!("{{{{ '{}' }}}}\n", "\\x41".repeat(16_000)).repeat(16),
        ),
    ]
}

#[test]
fn no_template_takes_more_than_it_is_given() {
    let refused = greedy()
        .into_iter()
        .map(|(name, source)| (name, source, true));
    let taken = modest()
        .into_iter()
        .map(|(name, source)| (name, source, false));
    for (name, source, is_refused) in refused.chain(taken) {
        let start = Instant::now();
        let result = bounded(100 << 20, || render(&source));
        let took = start.elapsed();
        // Some tenths of a second; much more is the machine's, and a minute is nobody's.
        assert!(took < Duration::from_secs(20), "{name}: {took:?}");
        assert_eq!(
            result.is_err(),
            is_refused,
            "{name}: {:?}",
            result.map(|t| t.len())
        );
    }
}
