//! A configuration is checked by the schema of its component, with places and nearest names; inputs and outputs by its ports.
#![allow(clippy::unwrap_used)]

mod components;

use std::sync::Arc;

use serde_json::{Value, json};
use weir_model::Description;
use weir_plan::{ConfigSchema, load};

/// A job of one operator, whose table has these lines beside its id.
fn job(operator: &str) -> String {
    format!(
        "[job]\nname = \"j\"\n[[source]]\nid = \"a\"\nconnector = \"generator\"\n[[source]]\nid = \"b\"\nconnector = \"generator\"\n\
         [[operator]]\nid = \"op\"\n{operator}\n[[sink]]\nid = \"out\"\nconnector = \"stdout\"\ninput = {{ from = [\"op\", \"b\"] }}\n"
    )
}

fn said(operator: &str) -> String {
    match load("job.toml", &job(operator), &[], &|_| None, &components::describe) {
        Ok(job) => job.warnings().to_string(),
        Err(errors) => errors.to_string(),
    }
}

fn typed(config: &str) -> String {
    said(&format!("component = \"typed@1\"\ninput = \"a\"\n{config}"))
}

/// What is said of a configuration, as one text a complaint, by a schema of its own.
fn by(schema: &Value, config: &str) -> String {
    let description = Arc::new(components::described(&["in"], &["main"], schema));
    let text = job(&format!("component = \"any@1\"\ninput = \"a\"\nconfig = {config}"));
    match load("job.toml", &text, &[], &|_| None, &|_, _| Ok(description.clone())) {
        Ok(_) => String::new(),
        Err(errors) => errors.iter().map(|error| error.message.clone()).collect::<Vec<_>>().join("; "),
    }
}

#[test]
fn a_configuration_that_fits_is_taken() {
    let field = "field = { name = \"n\", numbers = \"exact\", digits = 3 }";
    for config in [
        "{ kind = \"tumbling\", size = \"5m\" }".to_owned(),
        "{ kind = \"session\", gap = \"1h 30m\" }".to_owned(),
        format!("{{ kind = \"session\", gap = \"1h\", {field} }}"),
    ] {
        assert_eq!(typed(&format!("config = {config}")), "", "{config}");
    }
}

#[test]
fn what_is_missing_is_named_with_what_it_may_be() {
    let expected = r#"error[E0007]: `kind` is missing in `config` of operator `op`: expected "tumbling" or "session"
  --> job.toml:13:10
   |
13 | config = { size = "5m" }
   |          ^^^^^^^^^^^^^^^"#;
    assert_eq!(typed("config = { size = \"5m\" }"), expected);
    let without = typed("");
    assert!(without.contains("`kind` is missing in `config` of operator `op`") && without.contains("job.toml:9:1"), "{without}");
}

#[test]
fn a_slip_is_shown_where_it_stands_with_the_nearest_name() {
    let cases: [(&str, &[&str]); 9] = [
        (
            "{ kind = \"tumblin\", size = \"5m\" }",
            &[
                "`kind` in `config` of operator `op`: expected \"tumbling\" or \"session\", found the string \"tumblin\"",
                "did you mean \"tumbling\"?",
                "13:19",
            ],
        ),
        (
            "{ kind = \"tumbling\", sise = \"5m\" }",
            &[
                "error[E0002]: unknown key `sise` in `config` of operator `op`, and `size` is missing",
                "did you mean `size`?",
                "13:31",
            ],
        ),
        ("{ kind = \"tumbling\", size = \"5m\", gap = \"1m\" }", &["unknown key `gap` in `config`", "valid: kind, size, field"]),
        (
            "{ kind = \"session\", gap = \"soon\" }",
            &["`gap` in `config` of operator `op`: expected a string such as \"5m\", found the string \"soon\""],
        ),
        ("{ kind = \"session\", gap = 5 }", &["expected a string such as \"5m\", found the number 5"]),
        (
            "{ kind = \"session\", gap = \"5m\", field = { nme = \"x\" } }",
            &["unknown key `nme` in `config.field` of operator `op`, and `name` is missing"],
        ),
        (
            "{ kind = \"session\", gap = \"5m\", field = { name = \"\" } }",
            &["`name` in `config.field` of operator `op`: expected at least 1 character"],
        ),
        (
            "{ kind = \"session\", gap = \"5m\", field = { name = \"x\", digits = 10 } }",
            &["`digits` in `config.field` of operator `op`: expected a whole number from 0 to 9, found the number 10"],
        ),
        (
            "{ kind = \"session\", gap = \"5m\", field = { name = \"x\", numbers = \"round\" } }",
            &["expected \"exact\", \"rounded\" or \"float\"", "did you mean \"rounded\"?"],
        ),
    ];
    for (config, parts) in cases {
        let message = typed(&format!("config = {config}"));
        for part in parts {
            assert!(message.contains(part), "{config}\nlacks {part:?}:\n{message}");
        }
        assert_eq!(message.matches("error[").count(), 1, "one slip, one message:\n{message}");
    }
}

#[test]
fn keywords_mean_what_the_standard_says() {
    let cases = [
        (json!({ "properties": { "a": { "type": ["integer", "boolean"] } } }), "{ a = true }", "{ a = 1.5 }"),
        (json!({ "properties": { "a": { "const": 1.0 } } }), "{ a = 1 }", "{ a = 2 }"),
        (json!({ "properties": { "a": { "exclusiveMinimum": 0 } } }), "{ a = 0.1 }", "{ a = 0 }"),
        (json!({ "properties": { "a": { "multipleOf": 0.1 } } }), "{ a = 0.3 }", "{ a = 0.35 }"),
        (json!({ "properties": { "a": { "maxLength": 2 } } }), "{ a = \"éé\" }", "{ a = \"abc\" }"),
        (json!({ "properties": { "a": { "items": { "type": "string" }, "minItems": 1 } } }), "{ a = [\"x\"] }", "{ a = [1] }"),
        (
            json!({ "properties": { "a": { "prefixItems": [{ "type": "string" }], "items": false } } }),
            "{ a = [\"x\"] }",
            "{ a = [\"x\", 1] }",
        ),
        (json!({ "properties": { "a": { "uniqueItems": true } } }), "{ a = [1, 2] }", "{ a = [1, 2, 1] }"),
        (json!({ "properties": { "a": { "contains": { "const": 1 }, "maxContains": 1 } } }), "{ a = [1, 2] }", "{ a = [1, 1] }"),
        (json!({ "patternProperties": { "^x_": true }, "additionalProperties": false }), "{ x_y = 1 }", "{ y = 1 }"),
        (json!({ "additionalProperties": { "type": "integer" } }), "{ y = 1 }", "{ y = \"1\" }"),
        (json!({ "propertyNames": { "maxLength": 2 } }), "{ ab = 1 }", "{ abc = 1 }"),
        (json!({ "maxProperties": 1 }), "{ a = 1 }", "{ a = 1, b = 1 }"),
        (json!({ "dependentRequired": { "a": ["b"] } }), "{ b = 1 }", "{ a = 1 }"),
        (json!({ "dependentSchemas": { "a": { "required": ["b"] } } }), "{ a = 1, b = 1 }", "{ a = 1 }"),
        (json!({ "not": { "required": ["a", "b"] } }), "{ a = 1 }", "{ a = 1, b = 1 }"),
        (
            json!({ "if": { "required": ["a"] }, "then": { "required": ["b"] }, "else": { "required": ["c"] } }),
            "{ c = 1 }",
            "{ a = 1, c = 1 }",
        ),
        (json!({ "allOf": [{ "required": ["a"] }, { "required": ["b"] }] }), "{ a = 1, b = 1 }", "{ a = 1 }"),
        (json!({ "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] }), "{ a = 1, b = 1 }", "{ c = 1 }"),
        (json!({ "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] }), "{ a = 1 }", "{ a = 1, b = 1 }"),
        (json!({ "oneOf": [{ "type": "string" }, { "type": "integer" }] }), "{}", "{}"),
        (json!({ "$ref": "#/$defs/a", "$defs": { "a": { "required": ["a"] } } }), "{ a = 1 }", "{ b = 1 }"),
        (json!({ "format": "never heard of", "x-more": 1, "title": "t" }), "{ a = 1 }", ""),
        (json!(false), "", "{ a = 1 }"),
    ];
    for (schema, good, bad) in cases {
        if !good.is_empty() && good != bad {
            assert_eq!(by(&schema, good), "", "{schema} takes {good}");
        }
        assert!(bad.is_empty() || !by(&schema, bad).is_empty(), "{schema} refuses {bad}");
    }
}

#[test]
fn a_choice_of_plain_values_is_told_as_one() {
    let units = json!({ "properties": { "a": { "oneOf": [{ "const": "count", "description": "x" }, { "const": "sum" }] } } });
    assert!(
        by(&units, "{ a = \"sun\" }").contains("expected \"count\" or \"sum\", found the string \"sun\""),
        "{}",
        by(&units, "{ a = \"sun\" }")
    );
    let one = json!({ "enum": ["count", "sum"] });
    let many = json!({ "properties": { "a": { "anyOf": [one, { "type": "array", "items": one }] } } });
    assert_eq!(by(&many, "{ a = [\"sum\", \"count\"] }"), "");
    assert_eq!(
        by(&many, "{ a = [\"sum\", \"cunt\"] }"),
        "`1` in `config.a` of operator `op`: expected \"count\" or \"sum\", found the string \"cunt\""
    );
    assert_eq!(
        by(&many, "{ a = 1 }"),
        "`a` in `config` of operator `op`: expected \"count\", \"sum\" or an array, found the number 1"
    );
}

/// As the Rust SDK writes it for `window`.
#[test]
fn a_schema_that_a_program_has_written_is_told_as_plainly() {
    let span = json!({ "type": ["string", "null"], "pattern": "^\\s*([0-9]+d\\s*)?([0-9]+h\\s*)?([0-9]+m\\s*)?([0-9]+s\\s*)?([0-9]+ms)?\\s*$",
        "minLength": 2, "examples": ["30s", "5m"] });
    let numbers = json!({ "oneOf": [{ "type": "string", "const": "exact", "description": "As they are." }, { "type": "string", "const": "rounded" }] });
    let schema = json!({
        "type": "object", "title": "Config", "additionalProperties": false, "required": ["kind"],
        "properties": {
            "kind": { "$ref": "#/$defs/Kind", "description": "How windows lie in time" },
            "size": span,
            "aggregate": { "anyOf": [{ "$ref": "#/$defs/Aggregate" }, { "type": "array", "items": { "$ref": "#/$defs/Aggregate" }, "minItems": 1 }] },
            "numbers": { "anyOf": [{ "$ref": "#/$defs/Numbers" }, { "type": "null" }], "default": null },
        },
        "$defs": {
            "Kind": { "oneOf": [{ "type": "string", "const": "tumbling", "description": "Side by side." }, { "type": "string", "const": "session" }] },
            "Aggregate": { "type": "string", "enum": ["count", "sum"] },
            "Numbers": numbers,
        },
    });
    assert_eq!(
        by(&schema, "{ kind = \"tumbling\", size = \"1h 30m\", aggregate = [\"count\", \"sum\"], numbers = \"exact\" }"),
        ""
    );
    let cases = [
        ("{ size = \"5m\" }", "`kind` is missing in `config` of operator `op`: expected \"tumbling\" or \"session\""),
        (
            "{ kind = \"tumble\" }",
            "`kind` in `config` of operator `op`: expected \"tumbling\" or \"session\", found the string \"tumble\"",
        ),
        (
            "{ kind = \"session\", size = \"5 minutes\" }",
            "`size` in `config` of operator `op`: expected a string such as \"30s\" or \"5m\", found the string \"5 minutes\"",
        ),
        (
            "{ kind = \"session\", aggregate = \"median\" }",
            "`aggregate` in `config` of operator `op`: expected \"count\", \"sum\" or an array, found the string \"median\"",
        ),
        (
            "{ kind = \"session\", aggregate = [] }",
            "`aggregate` in `config` of operator `op`: expected at least 1 item, found an array of 0",
        ),
        (
            "{ kind = \"session\", numbers = 1 }",
            "`numbers` in `config` of operator `op`: expected \"exact\" or \"rounded\", found the number 1",
        ),
    ];
    for (config, message) in cases {
        assert_eq!(by(&schema, config), message, "{config}");
    }
}

#[test]
fn s115_a_schema_that_cannot_be_used_is_refused_with_the_reason() {
    let deep = format!("{}true{}", "{\"not\":".repeat(40), "}".repeat(40));
    let many: Vec<Value> = (0..65).map(|n| json!({ "pattern": format!("x{n}") })).collect();
    let chain: serde_json::Map<String, Value> =
        (0..40).map(|n| (n.to_string(), json!({ "$ref": format!("#/$defs/{}", n + 1) }))).collect();
    let cases = [
        ("{".to_owned(), "it is not JSON"),
        ("1".to_owned(), "# is no schema"),
        ("{}[".to_owned(), "it is not JSON"),
        ("[".repeat(100_000), "it is not JSON"),
        (deep, "nested deeper than 32 levels"),
        (json!({ "$ref": "https://example.org/x" }).to_string(), "outside of the schema"),
        (json!({ "items": { "$ref": "other.json#/a" } }).to_string(), "#/items/$ref refers to"),
        (json!({ "$ref": "#/$defs/no" }).to_string(), "where there is no schema"),
        (json!({ "$ref": "#" }).to_string(), "references lead from one to the next"),
        (json!({ "$defs": chain }).to_string(), "references lead from one to the next"),
        (json!({ "$dynamicRef": "#x" }).to_string(), "is not supported"),
        (json!({ "pattern": "(?=a)b" }).to_string(), "cannot be used"),
        (json!({ "pattern": "(a)\\1" }).to_string(), "cannot be used"),
        (json!({ "pattern": "((a{100}){100}){100}" }).to_string(), "cannot be used"),
        (json!({ "anyOf": many }).to_string(), "more than 64 regular expressions"),
        (json!({ "properties": [] }).to_string(), "expected an object of schemas"),
        (json!({ "anyOf": [] }).to_string(), "expected a list of schemas"),
        (json!({ "type": "text" }).to_string(), "expected a type"),
        (json!({ "multipleOf": 0 }).to_string(), "expected a number above 0"),
        (json!({ "minLength": -1 }).to_string(), "expected a whole number"),
    ];
    for (schema, reason) in cases {
        let found = ConfigSchema::parse(&schema).map(drop).unwrap_err();
        assert!(found.contains(reason), "{}: {found}", &schema[..schema.len().min(100)]);
    }
}

#[test]
fn s115_a_schema_that_never_ends_costs_a_bounded_number_of_steps() {
    // Each refers to the next twice: two to the power of 30 checks.
    let mut doubling: serde_json::Map<String, Value> = (0..30)
        .map(|n| {
            let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
            (format!("d{n}"), json!({ "allOf": [next, next], "description": "d" }))
        })
        .collect();
    doubling.insert("d30".to_owned(), json!(true));
    let cases = [
        json!({ "allOf": [{ "$ref": "#" }] }),
        json!({ "anyOf": [{ "$ref": "#" }, { "not": { "$ref": "#" } }] }),
        json!({ "$ref": "#/$defs/d0", "$defs": doubling }),
        json!({ "properties": { "a": { "pattern": "(x+x+)+y" } } }),
    ];
    let long = format!("{{ a = {:?} }}", "x".repeat(60_000));
    for (index, schema) in cases.iter().enumerate() {
        let said = by(schema, &long);
        assert!(
            said.contains("takes too long") || index == 3 && said.contains("expected a string that matches"),
            "{index}: {said}"
        );
        let schema = ConfigSchema::parse(&schema.to_string()).unwrap();
        assert!(schema.lines().len() <= 200);
    }
}

#[test]
fn a_schema_is_told_to_people_key_by_key() {
    let schema = json!({
        "description": "What it does.",
        "properties": {
            "size": { "type": "string", "examples": ["5m"], "description": "How\nlong." },
            "limit": { "type": "integer", "minimum": 1, "default": 10 },
            "field": { "$ref": "#/$defs/Field" },
        },
        "required": ["size"],
        "$defs": { "Field": { "type": "object", "properties": { "name": true }, "description": "Of the value." } },
    });
    let schema = ConfigSchema::parse(&schema.to_string()).unwrap();
    assert_eq!(schema.doc(), Some("What it does."));
    let lines: Vec<String> = schema
        .lines()
        .into_iter()
        .map(|line| {
            format!("{} {} {} {} {}", line.key, line.expected, line.is_required, line.default.unwrap_or_default(), line.doc)
        })
        .collect();
    assert_eq!(
        lines,
        [
            "size a string such as \"5m\" true  How long.",
            "limit a whole number of at least 1 false 10 ",
            "field a table false  Of the value.",
            "field.name anything false  ",
        ]
    );
    assert_eq!(ConfigSchema::parse(&Description::plain().config).unwrap().lines(), []);
}

#[test]
fn inputs_have_the_names_that_the_component_gives_them() {
    let join = |inputs: &str| said(&format!("component = \"join@1\"\n{inputs}"));
    assert_eq!(join("inputs = [{ from = \"a\", as = \"right\" }, { from = \"b\", as = \"left\" }]"), "");
    let cases = [
        (
            "inputs = [{ from = \"a\", as = \"left\" }, { from = \"b\", as = \"rihgt\" }]",
            "operator `op` has no input `rihgt`",
            "did you mean `right`?",
        ),
        (
            "inputs = [{ from = \"a\", as = \"left\" }, { from = \"b\", as = \"x\" }]",
            "operator `op` has no input `x`",
            "its component has: left, right",
        ),
        (
            "inputs = [{ from = \"a\", as = \"left\" }, \"b\"]",
            "operator `op` has several inputs, and `as` does not say which",
            "{ from = \"b\", as = ... } with one of: left, right",
        ),
        ("input = \"a\"", "operator `op` has several inputs", "left, right"),
        (
            "inputs = [{ from = \"a\", as = \"left\" }, { from = \"b\", as = \"left\" }]",
            "operator `op` has the input `left` twice",
            "joined in one",
        ),
    ];
    for (inputs, message, hint) in cases {
        let said = join(inputs);
        assert!(said.contains(message) && said.contains(hint) && said.contains("job.toml:12:"), "{inputs}:\n{said}");
    }
    // A union of two exchanges is what one entry cannot say.
    let mixed = |more: &str| {
        said(&format!(
            "component = \"plain@1\"\ninputs = [{{ from = \"a\", exchange = \"hash\" }}, {{ from = \"b\", exchange = \"broadcast\" }}{more}]"
        ))
    };
    assert_eq!(mixed(""), "");
    let again = mixed(", { from = \"b\", exchange = \"hash\" }");
    assert!(again.contains("operator `op` has the input `in` twice, by the same exchange"), "{again}");
    let half = join("input = { from = \"a\", as = \"left\" }");
    assert!(half.starts_with("warning: nothing leads to the input `right` of operator `op`"), "{half}");
    let two = said("component = \"plain@1\"\ninputs = [\"a\", \"b\"]");
    assert!(two.contains("operator `op` has the input `in` twice") && two.contains("{ from = [\"a\", \"b\"] }"), "{two}");
    assert_eq!(said("component = \"plain@1\"\ninputs = [{ from = [\"a\", \"b\"], as = \"in\" }]"), "");
    let sink =
        job("component = \"plain@1\"\ninput = \"a\"").replace("{ from = [\"op\", \"b\"] }", "{ from = \"op\", as = \"in\" }");
    let refused = load("job.toml", &sink, &[], &|_| None, &components::describe).unwrap_err().to_string();
    assert!(refused.contains("unknown key `as` in `input` of sink `out`"), "{refused}");
}

#[test]
fn outputs_in_a_job_file_are_over_and_it_says_what_to_write() {
    let said = said("component = \"window@1\"\ninput = \"a\"\noutputs = [\"main\", \"too_late\"]");
    let expected = r#"error[E0002]: `outputs` of operator `op` is over: a component says itself which outputs it has
  --> job.toml:13:1
   |
13 | outputs = ["main", "too_late"]
   | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
   = hint: take the line out; what reads from this operator names `op`, `op.late` (`too_late` here)"#;
    assert_eq!(said, expected);
}
