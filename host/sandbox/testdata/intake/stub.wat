;; What `componentize-qjs --stub-wasi` makes of an interface with a resource: the module is offered all functions of handles
;; and imports them, but each of its own functions traps, so that none ever makes a handle.
(component
  (component $stub
    (type $r' (resource (rep i32)))
    (export $r "r" (type $r'))
    (core func $drop (canon resource.drop $r))
    (core func $new (canon resource.new $r))
    (core func $rep (canon resource.rep $r))
    (core module $m
      (import "handles" "drop" (func (param i32)))
      (import "handles" "new" (func (param i32) (result i32)))
      (import "handles" "rep" (func (param i32) (result i32)))
      (func (export "make") (result i32) unreachable))
    (core instance $i (instantiate $m
      (with "handles" (instance (export "drop" (func $drop)) (export "new" (func $new)) (export "rep" (func $rep))))))
    (func (export "make") (result (own $r)) (canon lift (core func $i "make"))))
  (instance $stub (instantiate $stub))
  (core module $counter
    (import "stub" "make" (func $make (result i32)))
    (import "stub" "drop" (func $drop (param i32)))
    (global $count (mut i32) (i32.const 41))
    (func (export "count") (result i32)
      (global.set $count (i32.add (global.get $count) (i32.const 1)))
      (global.get $count))
    (func (export "make") (call $drop (call $make))))
  (alias export $stub "r" (type $r))
  (core func $make (canon lower (func $stub "make")))
  (core func $drop (canon resource.drop $r))
  (core instance $c (instantiate $counter
    (with "stub" (instance (export "make" (func $make)) (export "drop" (func $drop))))))
  (func (export "count") (result u32) (canon lift (core func $c "count")))
  (func (export "make") (canon lift (core func $c "make")))
  (instance $lifecycle)
  (export "weir:operator/lifecycle@0.2.0" (instance $lifecycle)))
