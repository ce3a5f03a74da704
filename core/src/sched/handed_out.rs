//! What the runner is told once: it goes out with a step, is done with when that step's output comes,
//! and goes out again where the step was taken back. Knows not what it is.

/// A list of things to tell.
#[derive(Debug)]
pub(super) struct HandedOut<T> {
    /// Each with the step that it went out with.
    items: Vec<(T, Option<u64>)>,
}

impl<T> Default for HandedOut<T> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

impl<T> HandedOut<T> {
    /// Something to tell with the next step.
    pub(super) fn push(&mut self, item: T) {
        self.items.push((item, None));
    }

    /// Everything that was not told yet, now told with `step`.
    pub(super) fn hand_out(&mut self, step: u64) -> Vec<T>
    where
        T: Clone,
    {
        let untold = self.items.iter_mut().filter(|(_, told)| told.is_none());
        let tell = |(item, told): &mut (T, Option<u64>)| {
            *told = Some(step);
            item.clone()
        };
        untold.map(tell).collect()
    }

    /// The output of `step` came: gives back what was told with it and still stands.
    pub(super) fn confirm(&mut self, step: u64) -> Vec<T> {
        let told = self.items.extract_if(.., |(_, told)| *told == Some(step));
        told.map(|(item, _)| item).collect()
    }

    /// No step that is not confirmed will be.
    pub(super) fn take_back(&mut self) {
        self.items.iter_mut().for_each(|(_, told)| *told = None);
    }

    /// Keeps those of which `keep` says so, told or not.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.items.retain(|(item, _)| keep(item));
    }

    /// All that are not confirmed.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.items.iter().map(|(item, _)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_told_once_and_again_where_it_was_taken_back() {
        let mut list = HandedOut::default();
        list.push('a');
        assert_eq!(list.hand_out(1), ['a']);
        list.push('b');
        // The same again is another thing.
        list.push('a');
        assert_eq!(list.hand_out(2), ['b', 'a']);
        assert_eq!(list.hand_out(3), []);
        assert_eq!(list.confirm(1), ['a']);
        list.take_back();
        list.retain(|item| *item != 'b');
        assert_eq!(list.hand_out(2), ['a']);
        assert_eq!(list.confirm(2), ['a']);
        assert_eq!(list.iter().count(), 0);
    }
}
