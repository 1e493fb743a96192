//! `export!`: makes a component of an operator.

/// Makes a component of an operator. Once in a crate, which is built as a `cdylib` for `wasm32-unknown-unknown`; on
/// other targets it exports nothing.
///
/// - `export!(Count);` The state lives in checkpoints, for the same build of the component only.
/// - `export!(Count, portable);` `Count` is `Serialize + DeserializeOwned`; its state can also be saved and loaded by
///   another version.
/// - `export!(Count, portable = totals);` The same, for the field `totals` alone: for an operator that keeps
///   configuration beside its state.
/// - `export!(Parse, stateless);` Nothing that `Parse` remembers from one row to the next matters: it is never captured, and
///   the parallelism of its operator may change between runs.
/// - `export!(Count, portable_by_hand);` `Count` implements [`Portable`](crate::Portable) itself.
#[macro_export]
macro_rules! export {
    ($operator:ident) => {
        $crate::__lifecycle!($operator, $crate::StateKind::Memory, {});
    };
    ($operator:ident, portable) => {
        impl $crate::Portable for $operator {
            fn save(&self, out: &mut $crate::StateWriter<'_>) -> ::std::result::Result<(), $crate::Error> {
                out.value(self)
            }
            fn load(&mut self, mut rows: $crate::StateRows<'_>) -> ::std::result::Result<(), $crate::Error> {
                if let ::std::option::Option::Some(value) = rows.value()? {
                    *self = value;
                }
                ::std::result::Result::Ok(())
            }
        }
        $crate::export!($operator, portable_by_hand);
    };
    ($operator:ident, portable = $field:ident) => {
        impl $crate::Portable for $operator {
            fn save(&self, out: &mut $crate::StateWriter<'_>) -> ::std::result::Result<(), $crate::Error> {
                out.value(&self.$field)
            }
            fn load(&mut self, mut rows: $crate::StateRows<'_>) -> ::std::result::Result<(), $crate::Error> {
                if let ::std::option::Option::Some(value) = rows.value()? {
                    self.$field = value;
                }
                ::std::result::Result::Ok(())
            }
        }
        $crate::export!($operator, portable_by_hand);
    };
    ($operator:ident, stateless) => {
        $crate::__lifecycle!($operator, $crate::StateKind::None, {});
    };
    ($operator:ident, portable_by_hand) => {
        $crate::__lifecycle!($operator, $crate::StateKind::Portable(<$operator as $crate::Portable>::VERSION), {
            impl $crate::bindings::portable::exports::weir::operator::portable::Guest for Component {
                fn save() -> ::std::result::Result<(), ::std::string::String> {
                    $crate::guest::save(&INSTANCE)
                }
                fn load(
                    rows: $crate::bindings::weir::operator::types::Batch,
                    written_by: ::std::string::String,
                ) -> ::std::result::Result<(), ::std::string::String> {
                    $crate::guest::load(&INSTANCE, rows, written_by)
                }
            }
            $crate::bindings::portable::export_portable!(Component with_types_in $crate::bindings::portable);
        });
    };
}

/// The exports that every component has, and `$more`.
#[doc(hidden)]
#[macro_export]
macro_rules! __lifecycle {
    ($operator:ident, $state:expr, { $($more:tt)* }) => {
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, reason = "the exported functions of the canonical ABI")]
        const _: () = {
            ::std::thread_local! {
                static INSTANCE: $crate::guest::Slot<$operator> = const { ::std::cell::RefCell::new(::std::option::Option::None) };
            }
            /// The name the component carries in itself; the host reads this section.
            const NAME: &str = ::std::concat!(::std::env!("CARGO_PKG_NAME"), "@", ::std::env!("CARGO_PKG_VERSION"));
            #[used]
            #[unsafe(link_section = "weir:component")]
            static NAME_SECTION: [u8; NAME.len()] = match NAME.as_bytes().first_chunk() {
                ::std::option::Option::Some(name) => *name,
                ::std::option::Option::None => ::std::unreachable!(),
            };
            struct Component;
            impl $crate::bindings::exports::weir::operator::lifecycle::Guest for Component {
                fn describe() -> $crate::bindings::weir::operator::types::Description {
                    $crate::guest::describe::<$operator>($state)
                }
                fn open(
                    context: $crate::bindings::weir::operator::types::Context,
                ) -> ::std::result::Result<
                    ::std::vec::Vec<$crate::bindings::weir::operator::types::Columns>,
                    ::std::string::String,
                > {
                    $crate::guest::open(&INSTANCE, context)
                }
                #[inline]
                fn process(
                    input: u32,
                    rows: $crate::bindings::weir::operator::types::Batch,
                ) -> ::std::result::Result<
                    ::std::vec::Vec<$crate::bindings::weir::operator::types::Rejection>,
                    ::std::string::String,
                > {
                    $crate::guest::process(&INSTANCE, input, rows)
                }
                fn advance(watermark: $crate::Timestamp) -> ::std::result::Result<(), ::std::string::String> {
                    $crate::guest::advance(&INSTANCE, watermark)
                }
                fn finish() -> ::std::result::Result<(), ::std::string::String> {
                    $crate::guest::finish(&INSTANCE)
                }
            }
            $crate::bindings::export_lifecycle!(Component with_types_in $crate::bindings);
            $($more)*
        };
    };
}
