;; Passes rows on and counts them; at the end it says how many it saw, in 20 digits. The count is in memory (at 16), so only
;; an instance that was restored from the right image says the right number.
(module
  (import "weir:operator/output@0.2.0" "emit" (func $emit (param i32 i32 i32 i32 i32)))
  (@custom "component-type" "")
  (data (i32.const 8) "\00\80\00\00")
  (memory (export "memory") 64)

  ;; Arguments of a call are put from 0x8000 on.
  (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (i32.load (i32.const 8)) (i32.const 15)) (i32.const -16)))
    (i32.store (i32.const 8) (i32.add (local.get $at) (local.get $size)))
    (local.get $at))

  (func $ok (result i32)
    (i32.store (i32.const 8) (i32.const 0x8000))
    (i64.store (i32.const 64) (i64.const 0))
    (i64.store (i32.const 72) (i64.const 0))
    (i32.const 64))

  ;; Never called: tests know what it is.
  (func (export "weir:operator/lifecycle@0.2.0#describe") (result i32) unreachable)

  (func (export "weir:operator/lifecycle@0.2.0#open")
    (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (drop (call $ok))
    ;; Of its input it asks for times, keys and values.
    (i32.store8 (i32.const 80) (i32.const 7))
    (i32.store (i32.const 68) (i32.const 80))
    (i32.store (i32.const 72) (i32.const 1))
    (i32.const 64))

  (func (export "weir:operator/lifecycle@0.2.0#process")
    (param $input i32) (param $rows i32) (param $has i32) (param $data i32) (param $data_n i32) (result i32)
    (i64.store (i32.const 16) (i64.add (i64.load (i32.const 16)) (i64.extend_i32_u (local.get $rows))))
    (call $emit (i32.const 0) (local.get $rows) (local.get $has) (local.get $data) (local.get $data_n))
    (call $ok))

  (func (export "weir:operator/lifecycle@0.2.0#advance") (param i64) (result i32) (call $ok))

  (func (export "weir:operator/lifecycle@0.2.0#finish") (result i32)
    (local $left i64) (local $at i32)
    (local.set $left (i64.load (i32.const 16)))
    (local.set $at (i32.const 160))
    (loop $digit
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (i64.store8 (local.get $at) (i64.add (i64.const 48) (i64.rem_u (local.get $left) (i64.const 10))))
      (local.set $left (i64.div_u (local.get $left) (i64.const 10)))
      (br_if $digit (i32.gt_u (local.get $at) (i32.const 140))))
    ;; One row: time 0 (at 128), where its value ends (20, at 136), the digits. No key.
    (i64.store (i32.const 128) (i64.const 0))
    (i32.store (i32.const 136) (i32.const 20))
    (call $emit (i32.const 0) (i32.const 1) (i32.const 5) (i32.const 128) (i32.const 32))
    (call $ok)))
