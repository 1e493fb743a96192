;; A module instantiated twice: each instance has its own globals. Between them, a module without any.
(component
  (core module $counter
    (global $count (mut i32) (i32.const 0))
    (func (export "bump") (result i32)
      (global.set $count (i32.add (global.get $count) (i32.const 1)))
      (global.get $count)))
  (core module $plain
    (func (export "noop")))
  (core instance $first (instantiate $counter))
  (core instance (instantiate $plain))
  (core instance $second (instantiate $counter))
  (func (export "bump-first") (result u32) (canon lift (core func $first "bump")))
  (func (export "bump-second") (result u32) (canon lift (core func $second "bump")))
  (instance $lifecycle)
  (export "weir:operator/lifecycle@0.2.0" (instance $lifecycle)))
