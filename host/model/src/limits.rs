//! Every bound of the host in one place, with the relations between them asserted at compile time.
//!
//! Units come last in names. Sizes are in bytes, times in milliseconds.

/// Rows a frame holds at most.
pub const FRAME_ROWS_MAX: usize = 32_768;

/// Bytes of keys, values and headers a frame holds before it is closed. A frame may exceed this by its last row.
pub const FRAME_BYTES_TARGET: usize = 2 << 20;

/// The longest key.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// The longest value, and so the longest line a source reads.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// The headers of one row, names and lengths included.
pub const HEADERS_BYTES_MAX: usize = 64 << 10;

/// Bytes of keys, values and headers in one frame on the wire. Whatever is larger travels as several frames; a peer's frame that
/// is larger is refused.
pub const FRAME_BYTES_MAX: usize = FRAME_BYTES_TARGET + KEY_BYTES_MAX + VALUE_BYTES_MAX + HEADERS_BYTES_MAX;

/// Frames one channel holds before its sender waits.
pub const CHANNEL_FRAMES_MAX: usize = 8;

/// Bytes one channel holds before its sender waits. The frame that crosses the bound is still taken.
pub const CHANNEL_BYTES_MAX: usize = 8 << 20;

/// Bytes one channel may always hold, however slowly its receiver takes them.
pub const CHANNEL_BYTES_MIN: usize = 16 << 10;

/// How long what a channel may hold should keep its receiver busy; between the two bounds above.
pub const CHANNEL_TARGET_MS: u64 = 100;

/// Default number of key groups, which bounds a keyed operator's parallelism.
pub const KEY_GROUPS_DEFAULT: u16 = 128;

/// Most key groups a job may have.
pub const KEY_GROUPS_MAX: u16 = 32_768;

/// Most subtasks of one operator.
pub const PARALLELISM_MAX: u32 = 1_024;

/// Largest component taken in.
pub const COMPONENT_BYTES_MAX: usize = 32 << 20;

/// Core functions a component may define.
pub const COMPONENT_FUNCTIONS_MAX: u32 = 100_000;

/// Size of one function body, which compilation takes more than proportionally longer for. The largest seen are those of
/// interpreters: CPython 427 KB, StarlingMonkey 172 KB, QuickJS 54 KB.
pub const FUNCTION_BYTES_MAX: usize = 1 << 20;

/// How deep components may nest.
pub const COMPONENT_NESTING_MAX: usize = 8;

/// Core instances one operator instance may hold (Python needs 38).
pub const CORE_INSTANCES_MAX: usize = 128;

/// Component instances one operator instance may hold.
pub const COMPONENT_INSTANCES_MAX: usize = 1_000;

/// Core modules and components a component may define. Python has 30.
pub const DEFINITIONS_MAX: u64 = 1_000;

/// How deep types may nest within a type section of a component. Tools that make components reach 3.
pub const TYPE_NESTING_MAX: usize = 16;

/// Linear memories one operator instance may hold.
pub const MEMORIES_MAX: usize = 16;

/// Tables one operator instance may hold.
pub const TABLES_MAX: usize = 64;

/// Elements of all tables of one operator instance (StarlingMonkey has 7,700). Each takes 8 bytes of the host.
pub const TABLE_ELEMENTS_MAX: usize = 256 << 10;

/// Mutable globals in one snapshot, 64 bits each. Every one is read by a call of its own (Python has 490).
pub const GLOBALS_MAX: usize = 1_024;

/// Stack of a guest call.
pub const GUEST_STACK_BYTES_MAX: usize = 1 << 20;

/// Bytes an operator may emit within one call.
pub const EMIT_BYTES_MAX: usize = 64 << 20;

/// Batches an operator may emit within one call.
pub const EMIT_BATCHES_MAX: usize = 65_536;

/// Bytes that a guest hands to the host in one call of it, or as the result of one call of the guest: what it emits at most,
/// and as much again for state that is saved in one piece. Texts are looked at whole before they are cut.
pub const HOSTCALL_BYTES_MAX: usize = 2 * EMIT_BYTES_MAX;

/// Log lines of one operator on one worker kept per second; more are counted and dropped.
pub const LOG_LINES_PER_SECOND_MAX: u32 = 100;

/// Longest log line; longer ones are cut.
pub const LOG_LINE_BYTES_MAX: usize = 4 << 10;

/// Names of metrics one operator may use on one worker.
pub const METRIC_NAMES_MAX: usize = 256;

/// Longest name of a metric; longer ones are ignored.
pub const METRIC_NAME_BYTES_MAX: usize = 256;

/// Bytes of a heartbeat beyond which it is sent in parts.
pub const HEARTBEAT_BYTES_MAX: usize = 1 << 20;

/// Bytes of names of metrics that one execution keeps on one worker, each with its operator's; further names are ignored.
pub const METRIC_BYTES_MAX: usize = 4 << 20;

/// Longest reason given with a rejected row or a failure; longer ones are cut.
pub const REASON_BYTES_MAX: usize = 1 << 10;

/// What is kept of the value of the first odd row of a kind.
pub const ODDITY_VALUE_BYTES_MAX: usize = 160;

/// What is kept of the reason why it is odd.
pub const ODDITY_REASON_BYTES_MAX: usize = 320;

/// Examples of odd rows that a worker says with the counts of one execution. Beyond that only numbers are said.
pub const ODDITY_EXAMPLES_BYTES_MAX: usize = 64 << 10;

/// How far beyond the time of day a row's event time may be, by default, where rows come as they happen.
pub const EVENT_TIME_AHEAD_MS_DEFAULT: u64 = 24 * 60 * 60 * 1_000;

/// Default memory of one operator instance.
pub const INSTANCE_MEMORY_BYTES_DEFAULT: u64 = 256 << 20;

/// Most memory one operator instance may be given (the reach of a 32-bit address).
pub const INSTANCE_MEMORY_BYTES_MAX: u64 = 4 << 30;

/// Most memory that a job may allow all instances of one operator on one worker.
pub const OPERATOR_MEMORY_BYTES_MAX: u64 = 1 << 50;

/// Share of the machine's (or the control group's) memory that a worker uses unless it is told, in percent.
pub const WORKER_MEMORY_PERCENT: u64 = 75;

/// Default deadline of one guest call.
pub const CALL_DEADLINE_MS_DEFAULT: u64 = 10_000;

/// Time one guest call should take; the rows per call adapt to it.
pub const CALL_TARGET_MS: u64 = 5;

/// Rows of an operator's first call, when nothing is known of what they cost.
pub const CALL_ROWS_FIRST: usize = 64;

/// A call that has met its deadline with many rows bounds later calls to their number divided by this.
pub const CALL_ROWS_DIVISOR: usize = 8;

/// After so many calls with as many rows as that allows, none of which met its deadline, the number doubles.
pub const CALLS_UNTIL_MORE_ROWS: usize = 4_096;

/// Deltas an image may consist of before it is merged.
pub const IMAGE_CHAIN_MAX: usize = 16;

/// Memory for captured pages that a process keeps to use again: what a checkpoint of some gibibytes of state writes in between is
/// encoded and given back while its captures are still being taken.
pub const CAPTURE_BLOCKS_BYTES_MAX: usize = 64 << 20;

/// A worker says that it is alive this often.
pub const HEARTBEAT_INTERVAL_MS: u64 = 250;

/// A worker that was not heard for this long is lost.
pub const HEARTBEAT_TIMEOUT_MS: u64 = 2_000;

/// A worker whose clock differs from the coordinator's by more than this is refused.
pub const CLOCK_SKEW_MS_MAX: u64 = 60_000;

/// Bytes of a component that one message carries.
pub const COMPONENT_PART_BYTES: usize = 1 << 20;

/// Bytes of components that a worker keeps after it has fetched them. Beyond that, those used longest ago are deleted.
pub const FETCHED_COMPONENTS_BYTES_MAX: u64 = 1 << 30;

/// Bytes of compiled components that are kept. Beyond that, those used longest ago are deleted.
pub const COMPILED_BYTES_MAX: u64 = 1 << 30;

/// CPU time of compiling one component, over all threads, in seconds. Python (18 MB) takes some 10 s.
pub const COMPILE_CPU_S_MAX: u64 = 120;

/// Memory of compiling one component.
pub const COMPILE_MEMORY_BYTES_MAX: u64 = 2 << 30;

/// Components that a process compiles at a time.
pub const COMPILATIONS_MAX: usize = 2;

/// Time of compiling one component, however little of the CPU it gets.
pub const COMPILE_MS_MAX: u64 = 900_000;

/// Largest machine code of one component.
pub const ARTEFACT_BYTES_MAX: u64 = 512 << 20;

/// CPU time in which a component says what it is.
pub const DESCRIBE_CPU_S_MAX: u64 = 10;

/// Time after which a component that has not said what it is is ended, however little of the CPU it got.
pub const DESCRIBE_MS_MAX: u64 = 120_000;

/// Memory that a component may use to say what it is, beside its machine code.
pub const DESCRIBE_MEMORY_BYTES_MAX: u64 = 512 << 20;

/// All texts of a component's description together.
pub const DESCRIPTION_BYTES_MAX: usize = 64 << 10;

/// Inputs of a component, and outputs.
pub const PORTS_MAX: usize = 16;

/// The longest name of an input or output.
pub const PORT_NAME_BYTES_MAX: usize = 64;

/// Memory of an instance that may be scratch.
pub const SCRATCH_BYTES_MAX: usize = 8 << 20;

/// Random bytes that a guest gets with one call.
pub const RANDOM_BYTES_MAX: usize = 64 << 10;

/// Bytes of a JSON document sent to the API: a job file with what it takes from the environment.
pub const API_BODY_BYTES_MAX: usize = 1 << 20;

/// Text of a job file, together with that of its `--set` flags. Values take up some 150 bytes each while they are read.
pub const JOB_FILE_BYTES_MAX: usize = 64 << 10;

/// All strings of a job together once variables and `--set` flags stand in them. Every process that has to do with a job holds
/// it, the coordinator those of all jobs.
pub const JOB_STRINGS_BYTES_MAX: usize = 512 << 10;

/// `--set` flags of a job.
pub const JOB_OVERRIDES_MAX: usize = 1_024;

/// Names in the dotted key of a `--set` flag. TOML itself nests no deeper.
pub const JOB_NESTING_MAX: usize = 64;

/// Sources, operators and sinks of a job, together.
pub const JOB_VERTICES_MAX: usize = 1_024;

/// Problems of a job file that are told at once.
pub const JOB_PROBLEMS_MAX: usize = 100;

/// Executions of a job whose workers are listened to: the one that runs, one that only tries, and those that still end.
pub const EXECUTIONS_HEARD_MAX: usize = 4;

/// An execution that is told to end and has not after this long is given up: its coordinator is told that it has ended, and its
/// threads are waited for by nobody. Longer than a guest call by default.
pub const EXECUTION_END_MS_MAX: u64 = 12_000;

/// A worker that was without a coordinator for this long ends what it runs: without checkpoints nothing that is written is ever
/// committed, and it would grow for ever. Long enough to start a coordinator again, on another machine if need be.
pub const COORDINATOR_ABSENT_MS_MAX: u64 = 900_000;

/// Executions of one job that a worker has at a time: one that runs, and those before it that take long to end. A job whose threads wait
/// for a mount does not take the worker's.
pub const EXECUTIONS_PER_JOB_MAX: usize = 4;

/// Executions that a worker has given up and that have not ended. Beyond that it takes no more.
pub const EXECUTIONS_STUCK_MAX: usize = 32;

/// Messages of workers that wait for one master. It never waits itself, so thousands of tasks that all acknowledge a checkpoint at once are the
/// most that is ever there; a worker that says more than fits is lost.
pub const MASTER_INPUTS_WAITING_MAX: usize = 256 << 10;

/// Messages of one worker that wait for its connection. One whose connection does not take them is lost, and registers anew.
pub const REPORTS_WAITING_MAX: usize = 64 << 10;

/// A reason that a worker gives; longer ones are cut.
pub const REPORT_TEXT_BYTES_MAX: usize = 16 << 10;

const _: () = assert!(REPORTS_WAITING_MAX >= 16 * PARALLELISM_MAX as usize, "all tasks of a worker may say something at once");
const _: () = assert!(MASTER_INPUTS_WAITING_MAX >= REPORTS_WAITING_MAX, "one worker does not fill a master's inbox");
const _: () = assert!(4 * HEARTBEAT_INTERVAL_MS <= HEARTBEAT_TIMEOUT_MS, "one late heartbeat loses no worker");
/// What all components of a job say of themselves. It goes with the job to every worker of it.
pub const JOB_DESCRIPTIONS_BYTES_MAX: usize = 4 << 20;

const _: () = assert!(
    2 * JOB_DESCRIPTIONS_BYTES_MAX < CONTROL_MESSAGE_BYTES_MAX,
    "what a job's components say can be sent, whatever escaping does"
);
const _: () = assert!(JOB_FILE_BYTES_MAX <= JOB_STRINGS_BYTES_MAX, "a file without variables never has too long strings");
const _: () = assert!(JOB_STRINGS_BYTES_MAX < API_BODY_BYTES_MAX, "what a job may become can be submitted");
/// Longest name of a node, a cluster or a job.
pub const NAME_BYTES_MAX: usize = 128;

/// Largest UDP payload. A send may hold ten of them, and the kernel refuses more than 65,507 bytes at once.
pub const PACKET_BYTES_MAX: u16 = 6_500;

/// Most that may wait unread on one stream of a connection. quinn gives up a connection when a stream has more than 1,024
/// gaps, which a larger window of small packets could have.
pub const STREAM_WINDOW_BYTES_MAX: u32 = 1 << 20;

/// Channels a peer may have open on one data connection. Each costs some 100 bytes as soon as the connection is there, and
/// a stream window of bytes while nobody reads it.
pub const CHANNELS_PER_CONNECTION_MAX: u32 = 4_096;

/// Events kept of each job; older ones are dropped.
pub const EVENTS_PER_JOB_MAX: u64 = 1_000;

/// Jobs one coordinator has at most: each has threads.
pub const JOBS_MAX: usize = 1_000;

/// Connections an endpoint holds at a time, both kinds: two per peer. One more attempt gets no answer.
pub const CONNECTIONS_MAX: usize = 1_024;

/// Of these, connections of one node. It has one of each kind, and for a moment those of its process before.
pub const NODE_CONNECTIONS_MAX: usize = 16;

/// Peers that an endpoint lets prove who they are at a time; of others nothing is kept. Each may hold about 64 KiB.
pub const HANDSHAKES_MAX: usize = 64;

/// Datagrams of attempts that were not looked at yet, together.
pub const HANDSHAKE_BUFFER_BYTES_MAX: u64 = 4 << 20;

/// Time a peer has to prove who it is and say hello; and to say which channel a stream is.
pub const HELLO_MS_MAX: u64 = 5_000;

/// Longest hello.
pub const HELLO_BYTES_MAX: usize = 512;

/// Largest control message.
pub const CONTROL_MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Control messages that wait for being sent, on one connection.
pub const CONTROL_QUEUE_MESSAGES_MAX: usize = 256;

/// Bytes of control messages that wait for being sent, on one connection.
pub const CONTROL_QUEUE_BYTES_MAX: usize = 32 << 20;

/// Connections that were accepted, but that nobody has taken from the endpoint yet.
pub const ACCEPTED_QUEUE_MAX: usize = 64;

/// Liveness connections of nodes that a coordinator holds.
pub const LIVENESS_CONNECTIONS_MAX: usize = 1_024;

/// Liveness connections of those that have not proved who they are.
pub const LIVENESS_STRANGERS_MAX: usize = 256;

/// Of these, connections from one network. Workers that start at once on one machine have to fit.
pub const LIVENESS_STRANGERS_PER_NETWORK_MAX: usize = 64;

const _: () = assert!(LIVENESS_STRANGERS_PER_NETWORK_MAX < LIVENESS_STRANGERS_MAX, "one network leaves places to others");
const _: () = assert!(NODE_CONNECTIONS_MAX * 16 <= CONNECTIONS_MAX, "one node leaves places to others");

const _: () =
    assert!(FETCHED_COMPONENTS_BYTES_MAX >= 8 * COMPONENT_BYTES_MAX as u64, "a job's components are kept until it restarts");
const _: () = assert!(2 * ARTEFACT_BYTES_MAX <= COMPILED_BYTES_MAX, "both forms of the largest component are kept");
const _: () = assert!(DESCRIBE_CPU_S_MAX * 1_000 < DESCRIBE_MS_MAX);
const _: () = assert!(PORT_NAME_BYTES_MAX * 2 * PORTS_MAX < DESCRIPTION_BYTES_MAX, "all ports may have the longest names");
const _: () = assert!(COMPILE_CPU_S_MAX * 1_000 < COMPILE_MS_MAX);
const _: () = assert!(FRAME_ROWS_MAX <= u32::MAX as usize);
const _: () = assert!(ODDITY_VALUE_BYTES_MAX + ODDITY_REASON_BYTES_MAX <= 1 << 10, "an example is a few lines on a terminal");
const _: () = assert!(ODDITY_EXAMPLES_BYTES_MAX * 16 <= CONTROL_MESSAGE_BYTES_MAX, "a heartbeat speaks of several executions");
const _: () = assert!(KEY_BYTES_MAX < VALUE_BYTES_MAX);
const _: () = assert!(CHANNEL_BYTES_MAX >= FRAME_BYTES_TARGET, "a channel holds at least one full frame");
const _: () = assert!(CHANNEL_BYTES_MIN <= CHANNEL_BYTES_MAX);
const _: () = assert!(EMIT_BYTES_MAX >= VALUE_BYTES_MAX, "one row of the longest value can be emitted");
const _: () = assert!(FRAME_BYTES_MAX < u32::MAX as usize, "column offsets fit in u32");
const _: () = assert!(KEY_GROUPS_DEFAULT <= KEY_GROUPS_MAX);
const _: () = assert!(CALL_TARGET_MS < CALL_DEADLINE_MS_DEFAULT);
const _: () =
    assert!(COORDINATOR_ABSENT_MS_MAX > 60 * HEARTBEAT_TIMEOUT_MS, "a coordinator that is started again finds its jobs");
const _: () = assert!(CALL_DEADLINE_MS_DEFAULT < EXECUTION_END_MS_MAX, "a guest call that runs to its deadline ends in time");
const _: () =
    assert!(CALL_ROWS_FIRST <= FRAME_ROWS_MAX && CALL_ROWS_DIVISOR > 1, "after each deadline that was met, calls have less rows");
const _: () = assert!(CALLS_UNTIL_MORE_ROWS > 1_000, "more rows are tried seldom: each try may cost a restart");
const _: () = assert!(INSTANCE_MEMORY_BYTES_DEFAULT <= INSTANCE_MEMORY_BYTES_MAX);
const _: () = assert!(PACKET_BYTES_MAX as usize * 10 <= 65_507, "ten packets fit into one send");
const _: () = assert!(CONTROL_MESSAGE_BYTES_MAX <= CONTROL_QUEUE_BYTES_MAX, "the largest message can wait");
const _: () = assert!(2 * HEARTBEAT_BYTES_MAX <= CONTROL_MESSAGE_BYTES_MAX, "a heartbeat is never too large to be sent");
const _: () =
    assert!(2 * METRIC_BYTES_MAX <= CONTROL_MESSAGE_BYTES_MAX, "last counts fit into a message, whatever escaping does");
const _: () = assert!(METRIC_NAMES_MAX * METRIC_NAME_BYTES_MAX <= METRIC_BYTES_MAX, "one operator may use its names");
const _: () = assert!(HELLO_BYTES_MAX >= 2 * NAME_BYTES_MAX + 64, "the longest names fit into a hello");
