//! TOML text to the tree.

use toml_edit::{Item, Key, Table, TomlError};

use crate::tree::{Data, Entry, Node, Origin};

/// Reads TOML. With `fixed`, all nodes have that origin (the value of a flag) instead of their place in the text.
pub(crate) fn parse(text: &str, fixed: Option<&Origin>) -> Result<Node, TomlError> {
    let document = toml_edit::Document::parse(text)?;
    let whole = fixed.cloned().unwrap_or(Origin::File(0..0));
    Ok(Node { data: Data::Table(Reader { fixed }.table(document.as_table(), &whole)), origin: whole })
}

struct Reader<'a> {
    fixed: Option<&'a Origin>,
}

impl Reader<'_> {
    /// `around`: the origin of what surrounds it, for a thing that has no text of its own (the tables of a dotted key).
    fn origin(&self, span: Option<std::ops::Range<usize>>, around: &Origin) -> Origin {
        self.fixed.cloned().or_else(|| span.map(Origin::File)).unwrap_or_else(|| around.clone())
    }

    fn item(&self, item: &Item, around: &Origin) -> Node {
        let origin = self.origin(item.span(), around);
        let data = match item {
            Item::None => Data::Missing,
            Item::Value(value) => return self.value(value, around),
            Item::Table(table) => Data::Table(self.table(table, &origin)),
            Item::ArrayOfTables(tables) => Data::Array(tables.iter().map(|table| self.array_table(table, &origin)).collect()),
        };
        Node { origin, data }
    }

    fn array_table(&self, table: &Table, around: &Origin) -> Node {
        let origin = self.origin(table.span(), around);
        Node { data: Data::Table(self.table(table, &origin)), origin }
    }

    fn table(&self, table: &Table, around: &Origin) -> Vec<Entry> {
        table.iter().map(|(key, item)| self.entry(table.key(key), key, |around| self.item(item, around), around)).collect()
    }

    fn entry(&self, key: Option<&Key>, name: &str, node: impl FnOnce(&Origin) -> Node, around: &Origin) -> Entry {
        let key_origin = self.origin(key.and_then(Key::span), around);
        Entry { key: name.to_owned(), node: node(&key_origin), key_origin }
    }

    fn value(&self, value: &toml_edit::Value, around: &Origin) -> Node {
        let origin = self.origin(value.span(), around);
        let data = match value {
            toml_edit::Value::String(text) => Data::String { text: text.value().clone(), loose: false },
            toml_edit::Value::Integer(number) => Data::Integer(*number.value()),
            toml_edit::Value::Float(number) => Data::Float(*number.value()),
            toml_edit::Value::Boolean(value) => Data::Boolean(*value.value()),
            toml_edit::Value::Datetime(time) => Data::String { text: time.value().to_string(), loose: false },
            toml_edit::Value::Array(items) => Data::Array(items.iter().map(|item| self.value(item, &origin)).collect()),
            toml_edit::Value::InlineTable(table) => {
                let entry = |(key, value)| self.entry(table.key(key), key, |around| self.value(value, around), &origin);
                Data::Table(table.iter().map(entry).collect())
            }
        };
        Node { origin, data }
    }
}
