//! Instances of a checkpoint that are on their way: made, read and filled by somebody else while their task runs.
//!
//! Knows whether an instance is there; what it is, what waits for it and when it is called, others decide.

/// The way of an instance into its task. Whoever fills it wakes the task once it is there; where that fails, the task is cancelled.
pub trait Arrival<T: ?Sized>: Send {
    /// The instance, once it is whole, and once.
    fn take(&mut self) -> Option<Box<T>>;

    /// Something waits for it: it is to come before those that nothing waits for. Returns at once.
    fn hurry(&self);
}

/// One that is there.
impl<T: ?Sized + Send> Arrival<T> for Option<Box<T>> {
    fn take(&mut self) -> Option<Box<T>> {
        Option::take(self)
    }

    fn hurry(&self) {}
}

/// The place of an instance in its task.
pub(crate) enum Berth<T: ?Sized> {
    Here(Box<T>),
    Coming(Box<dyn Arrival<T>>),
}

impl<T: ?Sized> Berth<T> {
    /// Takes the instance in if it has come. Says whether it is here.
    pub(crate) fn look(&mut self) -> bool {
        if let Berth::Coming(arrival) = self {
            match arrival.take() {
                Some(instance) => *self = Berth::Here(instance),
                None => return false,
            }
        }
        true
    }

    pub(crate) fn hurry(&self) {
        if let Berth::Coming(arrival) = self {
            arrival.hurry();
        }
    }

    /// The instance, which must be here: what is for one that is not waits.
    pub(crate) fn instance(&mut self) -> &mut T {
        match self {
            Berth::Here(instance) => instance,
            Berth::Coming(_) => unreachable!("an instance is called only once it is here"),
        }
    }
}
