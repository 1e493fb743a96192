//! Inputs and outputs of operators by the names that their components give them.

use weir_model::Description;

use crate::diagnostics::Code;
use crate::input::InputDraft;
use crate::job::VertexKind;
use crate::problems::Problems;
use crate::vertices::Draft;

/// Which input of its reader each of the inputs as written is. None for one that is wrong, which is reported. Sinks have one.
///
/// An input may be written several times where its exchanges differ, which one entry cannot say; all are a union.
pub(crate) fn inputs(draft: &Draft, problems: &mut Problems) -> Vec<Option<u32>> {
    let VertexKind::Operator(spec) = &draft.vertex.kind else { return vec![Some(0); draft.inputs.len()] };
    let mut taken: Vec<Option<u32>> = Vec::new();
    for (index, written) in draft.inputs.iter().enumerate() {
        let number = match &written.name {
            // With what it has unknown, any name may be right.
            _ if !draft.is_described => Some(0),
            Some((name, origin)) => {
                let number = spec.description.input(name);
                if number.is_none() {
                    let message = format!("{} has no input `{name}`", draft.name());
                    problems.error(Code::Graph, origin, message, Some(meant(&spec.description, name)));
                }
                number
            }
            None if spec.description.inputs.len() == 1 => Some(0),
            None => {
                let message = format!("{} has several inputs, and `as` does not say which this is", draft.name());
                let from = written.from.first().map_or("...", |(from, _)| from);
                let names = names(&spec.description);
                let hint = format!("write {{ from = {from:?}, as = ... }} with one of: {}", names.join(", "));
                problems.error(Code::Graph, &written.origin, message, Some(hint));
                None
            }
        };
        let exchange = |draft: &InputDraft| draft.exchange.as_ref().map(|(exchange, _)| *exchange);
        let mut before = taken.iter().zip(&draft.inputs[..index]);
        let is_again = before.any(|(other, before)| *other == number && exchange(before) == exchange(written));
        if draft.is_described && number.is_some() && is_again {
            let name = number.and_then(|number| spec.description.inputs.get(number as usize)).map_or("", |input| &input.name);
            let message = format!("{} has the input `{name}` twice, by the same exchange", draft.name());
            let hint = "what it reads there is joined in one: { from = [\"a\", \"b\"] }".to_owned();
            let origin = written.name.as_ref().map_or(&written.origin, |(_, origin)| origin);
            problems.error(Code::Graph, origin, message, Some(hint));
        }
        taken.push(number);
    }
    taken
}

fn names(description: &Description) -> Vec<&str> {
    description.inputs.iter().map(|input| input.name.as_str()).collect()
}

fn meant(description: &Description, name: &str) -> String {
    let names = names(description);
    match crate::nearest(name, names.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("its component has: {}", names.join(", ")),
    }
}

/// Warns of outputs that nothing reads, but those that get no rows.
pub(crate) fn warn_of_unread(draft: &Draft, is_read: &dyn Fn(u32) -> bool, problems: &mut Problems) {
    for (port, name) in (0..).zip(draft.output_names()) {
        if is_read(port) || draft.idle_outputs.contains(&port) {
            continue;
        }
        let message = format!("nothing reads the output `{name}` of {}: its rows are discarded", draft.name());
        let uid = &draft.vertex.uid;
        let reference = if port == 0 { uid.clone() } else { format!("{uid}.{name}") };
        let hint =
            format!("a sink with input = \"{reference}\" reads them; connector = \"blackhole\" says that nobody wants them");
        problems.warning(Code::Graph, &draft.id, message, Some(hint));
    }
}

/// Warns of inputs that get no rows.
pub(crate) fn warn_of_unfed(draft: &Draft, is_fed: &dyn Fn(u32) -> bool, problems: &mut Problems) {
    let VertexKind::Operator(spec) = &draft.vertex.kind else { return };
    for (number, input) in (0..).zip(&spec.description.inputs) {
        if !is_fed(number) {
            let message = format!("nothing leads to the input `{}` of {}: it never gets a row there", input.name, draft.name());
            let hint = format!("inputs = [..., {{ from = \"...\", as = \"{}\" }}]", input.name);
            problems.warning(Code::Graph, &draft.id, message, Some(hint));
        }
    }
}
