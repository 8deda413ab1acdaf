//! Iterators over the keys or the values of a map, made from its iterator over pairs.

/// Generates an iterator over one half of another iterator's pairs.
macro_rules! half {
    ($(#[$documentation:meta])* $name:ident, $whole:ident, $item:ident, $part:tt) => {
        $(#[$documentation])*
        pub struct $name<'a, K, V>(pub(super) $whole<'a, K, V>);

        impl<'a, K, V> Iterator for $name<'a, K, V> {
            type Item = &'a $item;

            fn next(&mut self) -> Option<&'a $item> {
                Some(self.0.next()?.$part)
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                self.0.size_hint()
            }
        }

        impl<K, V> DoubleEndedIterator for $name<'_, K, V> {
            fn next_back(&mut self) -> Option<Self::Item> {
                Some(self.0.next_back()?.$part)
            }
        }

        impl<K, V> ExactSizeIterator for $name<'_, K, V> {}
        impl<K, V> FusedIterator for $name<'_, K, V> {}

        impl<K, V> Clone for $name<'_, K, V> {
            fn clone(&self) -> Self {
                $name(self.0.clone())
            }
        }

        impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for $name<'_, K, V> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.debug_list().entries(self.0.clone().map(|pair| pair.$part)).finish()
            }
        }
    };
}
pub(super) use half;

/// Generates an iterator over the values of another iterator's pairs, for writing.
macro_rules! values_mut {
    ($(#[$documentation:meta])* $name:ident, $whole:ident) => {
        $(#[$documentation])*
        pub struct $name<'a, K, V>(pub(super) $whole<'a, K, V>);

        impl<'a, K: Persist, V: Persist> Iterator for $name<'a, K, V> {
            type Item = Mut<'a, V>;

            fn next(&mut self) -> Option<Mut<'a, V>> {
                Some(self.0.next()?.1)
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                self.0.size_hint()
            }
        }

        impl<K: Persist, V: Persist> DoubleEndedIterator for $name<'_, K, V> {
            fn next_back(&mut self) -> Option<Self::Item> {
                Some(self.0.next_back()?.1)
            }
        }

        impl<K: Persist, V: Persist> ExactSizeIterator for $name<'_, K, V> {}
        impl<K: Persist, V: Persist> FusedIterator for $name<'_, K, V> {}
    };
}
pub(super) use values_mut;
