;; A global that its own module never sets: others import it, one through an instance made of exports, and set it.
(component
  (core module $holder
    (global (export "stack") (mut i32) (i32.const 500))
    (global $private (mut i32) (i32.const 1)))
  (core module $user
    (import "env" "pointer" (global $pointer (mut i32)))
    (func (export "push") (result i32)
      (global.set $pointer (i32.sub (global.get $pointer) (i32.const 16)))
      (global.get $pointer)))
  (core instance $holder (instantiate $holder))
  (core instance $renamed (export "pointer" (global $holder "stack")))
  (core instance $user (instantiate $user (with "env" (instance $renamed))))
  (func (export "push") (result u32) (canon lift (core func $user "push")))
  (instance $lifecycle)
  (export "weir:operator/lifecycle@0.2.0" (instance $lifecycle)))
