//! Generated from wit/weir.wit: the imports, and the macros that make the exports of a component. Only on wasm32.
#![allow(unsafe_code, missing_docs, unreachable_pub, clippy::all, reason = "generated code")]

wit_bindgen::generate!({
    path: "wit",
    world: "operator",
    pub_export_macro: true,
    export_macro_name: "export_lifecycle",
    default_bindings_module: "weir_sdk::bindings",
});

/// The additional part of a component with portable state.
pub mod portable {
    wit_bindgen::generate!({
        path: "wit",
        world: "portable-state",
        pub_export_macro: true,
        export_macro_name: "export_portable",
        default_bindings_module: "weir_sdk::bindings::portable",
        with: { "weir:operator/types@0.2.0": super::weir::operator::types },
    });
}
