//! What is uploaded.

/// Components and modules, with what instrumentation looks at: globals, memories, data, start sections, nested components.
pub(super) fn components() -> Vec<Vec<u8>> {
    let texts = [
        "(module)",
        "(module (memory (export \"memory\") 1) (global (mut i32) (i32.const 7)) (global (mut v128) (v128.const i64x2 1 2))
           (data (i32.const 8) \"hello\") (func $start (global.set 0 (i32.const 1))) (start $start))",
        "(component)",
        "(component (core module $m (memory (export \"memory\") 1) (global (mut i64) (i64.const 7)) (data (i32.const 0) \"x\")
           (func (export \"f\") (param i32) (result i32) local.get 0))
           (core instance $i (instantiate $m))
           (func $f (param \"x\" u32) (result u32) (canon lift (core func $i \"f\")))
           (export \"f\" (func $f)))",
        "(component (component $inner (core module $m (global (mut i32) (i32.const 1))) (core instance (instantiate $m)))
           (instance (instantiate $inner)) (import \"weir:operator/log@0.2.0\" (instance (export \"log\" (func)))))",
    ];
    let mut all: Vec<Vec<u8>> = texts.iter().filter_map(|text| wat::parse_str(text).ok()).collect();
    all.push(include_bytes!("../../../operators/bundled/filter.wasm").to_vec());
    all
}
