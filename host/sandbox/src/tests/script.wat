;; An operator that does what it is told. Input 1 takes a script: rows of one value, kept at 1 MiB. Input 0, `advance` and `finish` carry
;; it out. A script is a number of commands, u32 each field: what (0 forward, 1 emit-values, 2 emit), port, then
;;   forward:     bytes of rows, rows
;;   emit-values: bytes of rows, bytes of values, rows, values
;;   emit:        number of rows, columns, bytes of data, data
;; The columns that `open` asks for of input 0 are the first byte of the configuration, as a letter from `@` on.
(module
  (import "weir:operator/output@0.2.0" "forward" (func $forward (param i32 i32 i32)))
  (import "weir:operator/output@0.2.0" "emit-values" (func $emit_values (param i32 i32 i32 i32 i32)))
  (import "weir:operator/output@0.2.0" "emit" (func $emit (param i32 i32 i32 i32 i32)))
  (import "weir:operator/ambient@0.2.0" "now" (func $now (result i64)))
  (memory (export "memory") 80)
  ;; How much of 2 MiB.. is taken; whether realloc asks for the time.
  (global $taken (mut i32) (i32.const 0))
  (global $asks (mut i32) (i32.const 0))
  (global $script_n (mut i32) (i32.const 0))

  (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
    (local $at i32)
    (if (global.get $asks) (then (drop (call $now))))
    (local.set $at (i32.and (i32.add (i32.add (i32.const 0x200000) (global.get $taken)) (i32.const 15)) (i32.const -16)))
    (global.set $taken (i32.sub (i32.add (local.get $at) (local.get $size)) (i32.const 0x200000)))
    (local.get $at))

  (func $ok (result i32)
    (global.set $taken (i32.const 0))
    (i64.store (i32.const 64) (i64.const 0))
    (i64.store (i32.const 72) (i64.const 0))
    (i32.const 64))

  (func $field (param $at i32) (param $n i32) (result i32)
    (i32.load (i32.add (local.get $at) (i32.shl (local.get $n) (i32.const 2)))))

  (func $run
    (local $at i32) (local $end i32) (local $what i32) (local $port i32) (local $a i32) (local $b i32) (local $c i32)
    (local.set $at (i32.const 0x100000))
    (local.set $end (i32.add (local.get $at) (global.get $script_n)))
    (loop $more
      (if (i32.lt_u (local.get $at) (local.get $end)) (then
        (local.set $what (call $field (local.get $at) (i32.const 0)))
        (local.set $port (call $field (local.get $at) (i32.const 1)))
        (local.set $a (call $field (local.get $at) (i32.const 2)))
        (if (i32.eqz (local.get $what)) (then
          (local.set $at (i32.add (local.get $at) (i32.const 12)))
          (call $forward (local.get $port) (local.get $at) (local.get $a))
          (local.set $at (i32.add (local.get $at) (local.get $a)))
          (br $more)))
        (local.set $b (call $field (local.get $at) (i32.const 3)))
        (if (i32.eq (local.get $what) (i32.const 1)) (then
          (local.set $at (i32.add (local.get $at) (i32.const 16)))
          (call $emit_values (local.get $port) (local.get $at) (local.get $a) (i32.add (local.get $at) (local.get $a)) (local.get $b))
          (local.set $at (i32.add (local.get $at) (i32.add (local.get $a) (local.get $b))))
          (br $more)))
        (local.set $c (call $field (local.get $at) (i32.const 4)))
        (local.set $at (i32.add (local.get $at) (i32.const 20)))
        (call $emit (local.get $port) (local.get $a) (local.get $b) (local.get $at) (local.get $c))
        (local.set $at (i32.add (local.get $at) (local.get $c)))
        (br $more)))))

  (func (export "weir:operator/lifecycle@0.2.0#open")
    (param i32 i32 i32 i32 i32 i32) (param $config i32) (param $config_n i32) (result i32)
    (i32.store8 (i32.const 96) (i32.sub (i32.load8_u (local.get $config)) (i32.const 64)))
    ;; Values alone of the script.
    (i32.store8 (i32.const 97) (i32.const 4))
    (global.set $asks (i32.gt_u (local.get $config_n) (i32.const 1)))
    ;; Nothing of the configuration is left behind.
    (memory.fill (i32.const 0x200000) (i32.const 0) (global.get $taken))
    (drop (call $ok))
    (i32.store (i32.const 68) (i32.const 96))
    (i32.store (i32.const 72) (i32.const 2))
    (i32.const 64))

  (func (export "weir:operator/lifecycle@0.2.0#process")
    (param $input i32) (param $rows i32) (param $has i32) (param $data i32) (param $data_n i32) (result i32)
    (if (local.get $input)
      (then
        (global.set $script_n (i32.load (local.get $data)))
        (memory.copy (i32.const 0x100000) (i32.add (local.get $data) (i32.const 4)) (global.get $script_n)))
      (else
        ;; What came, for the test to look at: columns, bytes, where.
        (i32.store (i32.const 112) (local.get $has))
        (i32.store (i32.const 116) (local.get $data_n))
        (i32.store (i32.const 120) (local.get $data))
        (call $run)))
    (call $ok))

  (func (export "weir:operator/lifecycle@0.2.0#advance") (param i64) (result i32) (call $run) (call $ok))
  (func (export "weir:operator/lifecycle@0.2.0#finish") (result i32) (call $run) (call $ok)))
