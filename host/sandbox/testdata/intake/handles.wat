;; Two components composed into an operator: one makes handles of a resource, the other keeps one in its memory. Everything
;; is valid, and no memory image would hold what the handle stands for.
(component
  (component $maker
    (type $r' (resource (rep i32)))
    (export $r "r" (type $r'))
    (core func $new (canon resource.new $r))
    (core module $m
      (import "handles" "new" (func $new (param i32) (result i32)))
      (func (export "make") (result i32) (call $new (i32.const 7))))
    (core instance $i (instantiate $m (with "handles" (instance (export "new" (func $new))))))
    (func (export "make") (result (own $r)) (canon lift (core func $i "make"))))
  (instance $maker (instantiate $maker))
  (component $keeper
    (import "maker" (instance $maker
      (export "r" (type $r (sub resource)))
      (export "make" (func (result (own $r))))))
    (core func $make (canon lower (func $maker "make")))
    (core module $m
      (import "maker" "make" (func $make (result i32)))
      (memory 1)
      (func (export "keep") (i32.store (i32.const 8) (call $make))))
    (core instance $i (instantiate $m (with "maker" (instance (export "make" (func $make))))))
    (func (export "keep") (canon lift (core func $i "keep"))))
  (instance $keeper (instantiate $keeper (with "maker" (instance $maker))))
  (instance $lifecycle)
  (export "weir:operator/lifecycle@0.2.0" (instance $lifecycle)))
