//! Resolves inputs to edges and checks that the graph can run.

use std::collections::BTreeMap;

use crate::chain::topological_order;
use crate::diagnostics::Code;
use crate::job::{Edge, Exchange, OnError, Port, VertexKind};
use crate::ports;
use crate::problems::Problems;
use crate::tree::Origin;
use crate::vertices::{DEAD_LETTER, Draft};

/// An edge and where its reader names it.
struct DrawnEdge {
    edge: Edge,
    /// Where the output is named.
    from: Origin,
    /// Where the exchange is written, if it is.
    exchange: Option<Origin>,
}

/// The edges of the graph, ordered by reader and input. Problems are reported; with any, the edges mean nothing.
pub(crate) fn connect(drafts: &[Draft], key_groups: u16, problems: &mut Problems) -> Vec<Edge> {
    let mut drawn: Vec<DrawnEdge> = Vec::new();
    for to in 0..drafts.len() {
        let inputs = ports::inputs(&drafts[to], problems);
        for (draft, input) in drafts[to].inputs.iter().zip(inputs) {
            let Some(input) = input else { continue };
            let first = drawn.len();
            for (name, origin) in &draft.from {
                for (from, port) in resolve(drafts, to, name, origin, problems) {
                    let exchange = draft.exchange.as_ref().map(|(exchange, _)| *exchange);
                    let exchange = exchange.unwrap_or(if drafts[from].vertex.parallelism == drafts[to].vertex.parallelism {
                        Exchange::Forward
                    } else {
                        Exchange::Rebalance
                    });
                    let edge = Edge { from, port, to, input, exchange };
                    if drawn[first..].iter().any(|other| other.edge == edge) {
                        let message = format!("{} reads `{name}` twice in one input", drafts[to].name());
                        problems.error(Code::Graph, origin, message, Some("each of its rows would count twice".to_owned()));
                        continue;
                    }
                    let exchange = draft.exchange.as_ref().map(|(_, origin)| origin.clone());
                    drawn.push(DrawnEdge { edge, from: origin.clone(), exchange });
                }
            }
        }
    }
    drawn.sort_by_key(|drawn| (drawn.edge.to, drawn.edge.input));
    check_exchanges(drafts, &drawn, key_groups, problems);
    check_cycles(drafts, &drawn, problems);
    check_ends(drafts, &drawn, problems);
    drawn.into_iter().map(|drawn| drawn.edge).collect()
}

/// The outputs a reference stands for.
fn resolve(drafts: &[Draft], to: usize, name: &str, origin: &Origin, problems: &mut Problems) -> Vec<(usize, Port)> {
    if name == DEAD_LETTER {
        return resolve_dead_letter(drafts, to, origin, problems);
    }
    let (uid, output) = name.split_once('.').map_or((name, None), |(uid, output)| (uid, Some(output)));
    let Some(from) = drafts.iter().position(|draft| draft.vertex.uid == uid) else {
        let candidates: Vec<&str> =
            drafts.iter().filter(|draft| !draft.output_names().is_empty()).map(|draft| draft.vertex.uid.as_str()).collect();
        // Only the vertex is misspelt: keep the output in the suggestion.
        let hint = crate::nearest(uid, candidates.iter().copied().chain([DEAD_LETTER])).map(|meant| match output {
            Some(output) if meant != DEAD_LETTER => format!("did you mean `{meant}.{output}`?"),
            _ => format!("did you mean `{meant}`?"),
        });
        let hint = hint.or_else(|| crate::problems::suggest(uid, &candidates));
        problems.error(
            Code::Graph,
            origin,
            format!("{} reads `{name}`, but nothing has the id `{uid}`", drafts[to].name()),
            hint,
        );
        return Vec::new();
    };
    if matches!(drafts[from].vertex.kind, VertexKind::Sink(_)) {
        let message = format!("{} reads {}, but a sink has no output", drafts[to].name(), drafts[from].name());
        problems.error(Code::Graph, origin, message, None);
        return Vec::new();
    }
    // With what it has unknown, any name may be right.
    if !drafts[from].is_described {
        return vec![(from, Port::Output(0))];
    }
    let names = drafts[from].output_names();
    match output.map_or(Some(0), |output| names.iter().position(|name| *name == output)) {
        Some(port) => vec![(from, Port::Output(u32::try_from(port).unwrap_or(u32::MAX)))],
        None => {
            let output = output.unwrap_or_default();
            let message = format!("{} reads `{name}`, but {} has no output `{output}`", drafts[to].name(), drafts[from].name());
            let dotted: Vec<String> = names.iter().map(|name| format!("{uid}.{name}")).collect();
            let dotted: Vec<&str> = dotted.iter().map(String::as_str).collect();
            let hint = match output {
                "dead_letter" => Some("`dead_letter` stands for the rejected rows of all operators".to_owned()),
                _ => match crate::nearest(output, names.iter().copied()) {
                    Some(meant) => Some(format!("did you mean `{uid}.{meant}`?")),
                    None => Some(format!("it has: {}", dotted.join(", "))),
                },
            };
            problems.error(Code::Graph, origin, message, hint);
            Vec::new()
        }
    }
}

/// The dead-letter outputs of all operators that set rows aside.
fn resolve_dead_letter(drafts: &[Draft], to: usize, origin: &Origin, problems: &mut Problems) -> Vec<(usize, Port)> {
    if !matches!(drafts[to].vertex.kind, VertexKind::Sink(_)) {
        let message = format!("{} reads `{DEAD_LETTER}`, which only sinks can read", drafts[to].name());
        problems.error(Code::Graph, origin, message, None);
        return Vec::new();
    }
    let sets_aside =
        |draft: &Draft| matches!(&draft.vertex.kind, VertexKind::Operator(spec) if spec.on_error == OnError::DeadLetter);
    let found: Vec<_> =
        (0..drafts.len()).filter(|from| sets_aside(&drafts[*from])).map(|from| (from, Port::DeadLetter)).collect();
    if found.is_empty() {
        let message = format!("{} reads `{DEAD_LETTER}`, but no operator writes to it", drafts[to].name());
        let hint = "operators do with on_error = \"dead_letter\", in [job] or at the operator".to_owned();
        let alone = drafts[to].inputs.iter().map(|input| input.from.len()).sum::<usize>() == 1;
        if alone {
            problems.error(Code::Graph, origin, message, Some(hint));
        } else {
            problems.warning(Code::Graph, origin, message, Some(hint));
        }
    }
    found
}

fn check_exchanges(drafts: &[Draft], drawn: &[DrawnEdge], key_groups: u16, problems: &mut Problems) {
    for drawn in drawn.iter().filter(|drawn| drawn.edge.exchange == Exchange::Forward) {
        let (from, to) = (&drafts[drawn.edge.from], &drafts[drawn.edge.to]);
        if from.vertex.parallelism != to.vertex.parallelism {
            let message = format!(
                "the forward exchange needs equal parallelism, but {} has {} and {} has {}",
                from.name(),
                from.vertex.parallelism,
                to.name(),
                to.vertex.parallelism
            );
            let hint = "give both the same parallelism, or use exchange = \"rebalance\"".to_owned();
            problems.error(Code::Graph, drawn.exchange.as_ref().unwrap_or(&drawn.from), message, Some(hint));
        }
    }
    for (to, draft) in drafts.iter().enumerate() {
        let inputs = || drawn.iter().filter(move |drawn| drawn.edge.to == to);
        let Some(hash) = inputs().find(|drawn| drawn.edge.exchange == Exchange::Hash) else { continue };
        let by_place = |drawn: &&DrawnEdge| matches!(drawn.edge.exchange, Exchange::Forward | Exchange::Rebalance);
        if let Some(mixed) = inputs().find(by_place).filter(|_| matches!(draft.vertex.kind, VertexKind::Operator(_))) {
            let message = format!(
                "{} is keyed by its hash input `{}`, so it cannot read `{}` by {}",
                draft.name(),
                reference(drafts, &hash.edge),
                reference(drafts, &mixed.edge),
                mixed.edge.exchange
            );
            let hint = "each key group has its own instance: use exchange = \"hash\" or \"broadcast\" for this input".to_owned();
            problems.error(Code::Graph, mixed.exchange.as_ref().unwrap_or(&mixed.from), message, Some(hint));
        }
        if draft.vertex.parallelism > u32::from(key_groups) {
            let parallelism = draft.vertex.parallelism;
            let message = format!(
                "{} has a hash input and parallelism {parallelism}, more than the job's {key_groups} key groups",
                draft.name()
            );
            let hint =
                "raise key_groups in [job] (a new job only: it is fixed for a job's life) or lower the parallelism".to_owned();
            problems.error(Code::Graph, draft.parallelism.as_ref().unwrap_or(&draft.origin), message, Some(hint));
        }
    }
}

/// How an input names what this edge comes from.
fn reference(drafts: &[Draft], edge: &Edge) -> String {
    let from = &drafts[edge.from];
    match edge.port {
        Port::DeadLetter => DEAD_LETTER.to_owned(),
        Port::Output(0) => from.vertex.uid.clone(),
        Port::Output(port) => format!("{}.{}", from.vertex.uid, from.output_names().get(port as usize).unwrap_or(&"?")),
    }
}

fn check_cycles(drafts: &[Draft], drawn: &[DrawnEdge], problems: &mut Problems) {
    let edges: Vec<Edge> = drawn.iter().map(|drawn| drawn.edge.clone()).collect();
    let ordered = topological_order(drafts.len(), &edges);
    if ordered.len() == drafts.len() {
        return;
    }
    // Every vertex that is left has a writer that is left, so walking up comes round.
    let left = |vertex: usize| !ordered.contains(&vertex);
    let Some(mut vertex) = (0..drafts.len()).find(|vertex| left(*vertex)) else { return };
    let mut walked: BTreeMap<usize, usize> = BTreeMap::new();
    let mut path: Vec<&DrawnEdge> = Vec::new();
    while !walked.contains_key(&vertex) {
        walked.insert(vertex, path.len());
        let Some(up) = drawn.iter().find(|drawn| drawn.edge.to == vertex && left(drawn.edge.from)) else { return };
        path.push(up);
        vertex = up.edge.from;
    }
    let cycle = &path[walked[&vertex]..];
    let names: Vec<&str> = cycle.iter().rev().map(|drawn| drafts[drawn.edge.from].vertex.uid.as_str()).collect();
    let message = format!("operators form a cycle: {} -> {}", names.join(" -> "), names.first().unwrap_or(&""));
    let hint = "rows flow from sources to sinks; an operator cannot read what depends on its own output".to_owned();
    if let Some(closing) = cycle.first() {
        problems.error(Code::Graph, &closing.from, message, Some(hint));
    }
}

fn check_ends(drafts: &[Draft], drawn: &[DrawnEdge], problems: &mut Problems) {
    if !drafts.iter().any(|draft| matches!(draft.vertex.kind, VertexKind::Source(_))) {
        let hint = "add a [[source]] with an id and a connector".to_owned();
        problems.error(Code::Graph, &Origin::File(0..0), "the job has no source", Some(hint));
        return;
    }
    // With errors, an output may only seem unread.
    if problems.has_errors() {
        return;
    }
    if drawn.is_empty() {
        let hint = "add an [[operator]] or a [[sink]] with input = \"...\"".to_owned();
        problems.error(Code::Graph, &drafts[0].origin, "nothing reads the sources of this job", Some(hint));
        return;
    }
    for (from, draft) in drafts.iter().enumerate() {
        let read = |port| drawn.iter().any(|drawn| drawn.edge.from == from && drawn.edge.port == Port::Output(port));
        ports::warn_of_unread(draft, &read, problems);
        let fed = |input| drawn.iter().any(|drawn| drawn.edge.to == from && drawn.edge.input == input);
        ports::warn_of_unfed(draft, &fed, problems);
    }
}
