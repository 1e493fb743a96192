//! How much memory guests hold, of one operator and of all operators of a process, and what happens beyond the bounds.
//!
//! What only one instance can have is charged before it is given: what its memories have grown beyond the template's, and tables.
//! Pages of the template are shared until they are written; which are, is known at captures and charged then. In between the
//! process's own memory is watched. Whoever is over a bound is told so at its next growth or call, by name; the host goes on.
//! Decision 0025. Owns the sums and the bounds; stops nothing itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// All guests of a process.
pub(crate) struct WorkerMemory {
    /// None: no bound.
    limit: Option<u64>,
    held: AtomicU64,
    operators: Mutex<Vec<Weak<OperatorMemory>>>,
}

/// All instances of one operator in this process, and its template.
pub(crate) struct OperatorMemory {
    worker: Arc<WorkerMemory>,
    limit: Option<u64>,
    held: AtomicU64,
    /// Instances, and what each shares with the template as long as it does not write there.
    instances: AtomicU64,
    template_bytes: AtomicU64,
    /// Why none of its instances may go on.
    ended: OnceLock<String>,
}

impl WorkerMemory {
    pub(crate) fn new(limit: Option<u64>) -> Arc<WorkerMemory> {
        Arc::new(WorkerMemory { limit, held: AtomicU64::new(0), operators: Mutex::default() })
    }

    pub(crate) fn is_bounded(&self) -> bool {
        self.limit.is_some()
    }

    /// The account of an operator with a bound of its own, or only the worker's.
    pub(crate) fn operator(self: &Arc<WorkerMemory>, limit: Option<u64>) -> Arc<OperatorMemory> {
        let operator = Arc::new(OperatorMemory {
            worker: self.clone(),
            limit,
            held: AtomicU64::new(0),
            instances: AtomicU64::new(0),
            template_bytes: AtomicU64::new(0),
            ended: OnceLock::new(),
        });
        let mut operators = self.operators.lock().unwrap_or_else(PoisonError::into_inner);
        operators.retain(|operator| operator.strong_count() > 0);
        operators.push(Arc::downgrade(&operator));
        operator
    }

    /// Looks at what the process holds (bytes that it shares with nobody), and ends an operator if that is too much: the one that
    /// explains it. One at a time, as it takes a moment until its memory is given back.
    pub(crate) fn look(&self, process_bytes: u64) {
        let Some(limit) = self.limit.filter(|&limit| process_bytes > limit) else { return };
        let operators = self.operators.lock().unwrap_or_else(PoisonError::into_inner);
        let operators: Vec<Arc<OperatorMemory>> = operators.iter().filter_map(Weak::upgrade).collect();
        if operators.iter().any(|operator| operator.ended().is_some()) {
            return;
        }
        let unexplained = process_bytes.saturating_sub(self.held.load(Ordering::Relaxed));
        let held = operators.iter().max_by_key(|operator| operator.held.load(Ordering::Relaxed));
        let held = held.filter(|operator| operator.held.load(Ordering::Relaxed) >= unexplained);
        let Some(operator) = held.or_else(|| operators.iter().max_by_key(|operator| operator.reach())) else { return };
        operator.end(format!(
            "this process holds {process_bytes} bytes, more than the limit of {limit}, most of them for this operator; give its job fewer key \
             groups or more workers, or raise --memory"
        ));
    }
}

impl OperatorMemory {
    /// Takes bytes, if the bounds allow. An error says which does not.
    pub(crate) fn take(self: &Arc<OperatorMemory>, bytes: u64) -> Result<Charge, String> {
        let mut charge = Charge { operator: self.clone(), bytes: 0 };
        charge.take(bytes)?;
        Ok(charge)
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// What its template shares with each instance.
    pub(crate) fn set_template_bytes(&self, bytes: u64) {
        self.template_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Why no instance may go on, if so.
    #[inline]
    pub(crate) fn ended(&self) -> Option<&str> {
        self.ended.get().map(String::as_str)
    }

    fn end(&self, why: String) {
        // Whoever was first has said it.
        let _ = self.ended.set(why);
    }

    /// The most it may hold, whatever it has written since it was looked at.
    fn reach(&self) -> u64 {
        let shared = self.instances.load(Ordering::Relaxed).saturating_mul(self.template_bytes.load(Ordering::Relaxed));
        self.held.load(Ordering::Relaxed).saturating_add(shared)
    }
}

/// Bytes that are given back when this is dropped.
pub(crate) struct Charge {
    operator: Arc<OperatorMemory>,
    bytes: u64,
}

impl Charge {
    pub(crate) fn operator(&self) -> &Arc<OperatorMemory> {
        &self.operator
    }

    /// Takes more, if the bounds allow. An error says which does not, and changes nothing.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), String> {
        let (operator, worker) = (&self.operator, &self.operator.worker);
        let try_add = |held: &AtomicU64, limit: Option<u64>| {
            held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                let sum = held.checked_add(bytes)?;
                limit.is_none_or(|limit| sum <= limit).then_some(sum)
            })
        };
        if let (Err(held), Some(limit)) = (try_add(&operator.held, operator.limit), operator.limit) {
            return Err(over_operator(held, limit));
        }
        if let (Err(held), Some(limit)) = (try_add(&worker.held, worker.limit), worker.limit) {
            operator.held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(format!(
                "all operators of this process hold {held} bytes, and may hold {limit}; give the job more workers, or raise --memory"
            ));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Takes what is held already. Ends the operator if that is too much.
    pub(crate) fn found(&mut self, bytes: u64) {
        self.bytes += bytes;
        let held = self.operator.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let of_all = self.operator.worker.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if let Some(limit) = self.operator.limit.filter(|&limit| held > limit) {
            self.operator.end(over_operator(held, limit));
        }
        // The one that explains it need not be this one.
        self.operator.worker.look(of_all);
    }

    /// Gives some of it back.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.operator.held.fetch_sub(bytes, Ordering::Relaxed);
        self.operator.worker.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

fn over_operator(held: u64, limit: u64) -> String {
    format!(
        "the operator's instances in this process hold {held} bytes together, and may hold {limit}; raise `limits.memory_total` of the operator"
    )
}

/// Counts an instance for as long as it lives.
pub(crate) struct Count(Arc<OperatorMemory>);

impl Count {
    pub(crate) fn new(operator: &Arc<OperatorMemory>) -> Count {
        operator.instances.fetch_add(1, Ordering::Relaxed);
        Count(operator.clone())
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.0.instances.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes of this process that no file and no other process has. None where the kernel does not say.
pub(crate) fn process_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = statm.split(' ').skip(1).map_while(|field| field.parse::<u64>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn s94_an_operator_is_bounded_over_its_instances_and_a_worker_over_its_operators() {
        let worker = WorkerMemory::new(Some(100 * MIB));
        let (one, other) = (worker.operator(Some(60 * MIB)), worker.operator(None));
        let mut first = one.take(40 * MIB).ok();
        let refused = one.take(21 * MIB).err();
        assert!(refused.is_some_and(
            |why| why.contains("hold 41943040 bytes together, and may hold 62914560") && why.contains("memory_total")
        ));
        let second = other.take(60 * MIB).ok();
        let refused = other.take(1).err();
        assert!(refused.is_some_and(|why| why.contains("all operators of this process hold 104857600 bytes") && why.contains("--memory")));
        // What is refused is not counted, and what is dropped is given back.
        drop(second);
        assert!(first.as_mut().is_some_and(|first| first.take(20 * MIB).is_ok()));
        assert!(other.take(40 * MIB).is_ok());
    }

    #[test]
    fn s94_what_is_found_too_late_ends_the_operator_and_no_other() {
        let worker = WorkerMemory::new(None);
        let (one, other) = (worker.operator(Some(MIB)), worker.operator(Some(MIB)));
        let mut charge = one.take(0).ok();
        charge.iter_mut().for_each(|charge| charge.found(2 * MIB));
        assert!(one.ended().is_some_and(|why| why.contains("hold 2097152 bytes together")));
        assert!(other.ended().is_none());
    }

    #[test]
    fn s94_the_operator_that_explains_what_a_process_holds_is_ended() {
        let worker = WorkerMemory::new(Some(100 * MIB));
        let (large, wide) = (worker.operator(None), worker.operator(None));
        wide.set_template_bytes(MIB);
        let _instances: Vec<Count> = (0..90).map(|_| Count::new(&wide)).collect();
        let held = large.take(70 * MIB).ok();
        worker.look(100 * MIB);
        assert!(large.ended().is_none() && wide.ended().is_none(), "it is the limit, not more");
        worker.look(101 * MIB);
        assert!(large.ended().is_some_and(|why| why.contains("holds 105906176 bytes")) && wide.ended().is_none());
        worker.look(200 * MIB);
        assert!(wide.ended().is_none(), "one at a time");
        drop((held, large));
        // What nobody was charged for was written over templates.
        worker.look(101 * MIB);
        assert!(wide.ended().is_some());
    }

    #[test]
    fn the_process_knows_what_it_holds() {
        let before = process_bytes();
        let block = vec![1u8; 64 << 20];
        let grown = process_bytes().zip(before).map(|(after, before)| after.saturating_sub(before));
        assert!(grown.is_some_and(|grown| grown > 60 << 20), "{grown:?}");
        drop(block);
    }
}
