//! Long work in, its early end out, where somebody asks for it: between its pieces, work asks a hook of its
//! thread. A command ends with its process and needs none; a cell of a notebook, and a request whose client
//! has gone, do not.

use std::cell::RefCell;

use crate::error::{Error, Result};

/// True once the work is to end.
type Hook = Box<dyn Fn() -> bool>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Does `work`, which fails with [`Error::Interrupted`] between two of its pieces once `asked` returns true.
/// It is asked often, on this thread.
pub fn interruptible<T>(asked: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    /// Puts the hook before back, also when the work panics.
    struct Before(Option<Hook>);
    impl Drop for Before {
        fn drop(&mut self) {
            HOOK.set(self.0.take());
        }
    }
    let _before = Before(HOOK.replace(Some(Box::new(asked))));
    work()
}

/// Fails if this thread's work is to end.
pub(crate) fn check() -> Result<()> {
    let asked = HOOK.with_borrow(|hook| hook.as_ref().is_some_and(|asked| asked()));
    if asked { Err(Error::Interrupted) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_where_it_is_asked_to_and_only_there() {
        let work = || (0..10).try_for_each(|_| check());
        let left = std::rc::Rc::new(std::cell::Cell::new(3_u32));
        let asked = move || left.replace(left.get().saturating_sub(1)) == 0;
        assert!(matches!(interruptible(asked, work), Err(Error::Interrupted)));
        assert!(interruptible(|| false, work).is_ok());
        // Nobody asks any more, and within another's work its own hook counts.
        assert!(work().is_ok());
        let nested = interruptible(|| true, || interruptible(|| false, work).and_then(|()| work()));
        assert!(matches!(nested, Err(Error::Interrupted)));
    }
}
