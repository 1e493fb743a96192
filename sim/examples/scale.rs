//! Prints, as one JSON line, what a checkpoint costs the coordinator of jobs of 5,000, 10,000 and 20,000 subtasks.

fn main() {
    let measured = [250, 500, 1_000].map(|workers| weir_sim::scale::measure(workers, 20, 5));
    let of = |measured: &weir_sim::scale::Measurement| {
        serde_json::json!({
            "subtasks": measured.subtasks,
            "cpu_ms_per_checkpoint": measured.per_checkpoint.as_secs_f64() * 1_000.0,
            "decoding_ms": measured.decoding.as_secs_f64() * 1_000.0,
            "manifest_bytes": measured.manifest_bytes,
        })
    };
    #[allow(clippy::print_stdout, reason = "this is what it is for")]
    {
        println!("{}", serde_json::json!({"scale": measured.iter().map(of).collect::<Vec<_>>()}));
    }
}
