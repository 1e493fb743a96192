//! Panics of threads and async tasks that serve an execution: a bug in Weir has to end one attempt of one job with its text and
//! place, and must not leave others waiting for an answer that never comes.
//!
//! Whoever starts a thread runs its body in [`caught`], and says what follows from a panic. Nothing here decides that.

use std::any::Any;
use std::cell::RefCell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;

thread_local! {
    /// Where this thread panicked last.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs something. A panic is given as text: where, and with which message.
///
/// What the closure borrows may be half changed after a panic: drop it, or use only what no panic can leave half done.
///
/// # Errors
/// The panic.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    note_places();
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| text(&*panic))
}

/// The same for a future. Cancelling it cancels what runs.
///
/// # Errors
/// The panic.
pub async fn caught_async<F: Future>(run: F) -> Result<F::Output, String> {
    let mut run = pin!(run);
    poll_fn(|context| match caught(|| run.as_mut().poll(context)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// In one line, for whoever has to report it: `WHAT panicked at FILE:LINE: MESSAGE; this is a bug in weir, ...`.
pub fn bug(what: &str, panic: &str) -> String {
    format!("{what} panicked {panic}; this is a bug in weir, please report it")
}

/// Has the place of each panic noted, beside what the process does with panics otherwise.
fn note_places() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let place = panic.location().map(|place| format!("at {}:{}", place.file(), place.line()));
            // While a thread ends its locals may be gone.
            let _ = PLACE.try_with(|held| held.replace(place));
            before(panic);
        }));
    });
}

fn text(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    // A panic that another thread has handed over has its place there.
    let place = PLACE.try_with(|held| held.take()).ok().flatten().unwrap_or_else(|| "in another thread".to_owned());
    format!("{place}: {}", message.unwrap_or("no message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_given_with_its_place_and_text() {
        assert_eq!(caught(|| 5), Ok(5));
        let panic = caught(|| {
            if true {
                panic!("told to, {}", 7)
            }
        })
        .unwrap_err();
        let (place, message) = panic.split_once(": ").unwrap();
        assert!(place.starts_with("at ") && place.contains("panics.rs:"), "{panic}");
        assert_eq!(message, "told to, 7");
        let panic = caught(|| {
            if true {
                std::panic::resume_unwind(Box::new(5))
            }
        })
        .unwrap_err();
        assert_eq!(panic, "in another thread: no message");
    }

    #[test]
    fn a_panic_within_a_future_is_given_as_well() {
        let run = |fails: bool| async move {
            if fails {
                panic!("told to");
            }
            5
        };
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut poll = |fails| match pin!(caught_async(run(fails))).poll(&mut context) {
            Poll::Ready(done) => done,
            Poll::Pending => unreachable!("it does not wait"),
        };
        assert_eq!(poll(false), Ok(5));
        assert!(poll(true).unwrap_err().ends_with("told to"));
    }
}
