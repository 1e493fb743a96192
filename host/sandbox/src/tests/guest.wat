;; An operator for tests. What `process` does is chosen by its input number; rows carry its arguments.
;;
;; Memory: 0..64 variables (8: next argument), 64 result area, 1024 texts, 64 KiB.. what the
;; machine writes, 1 MiB.. arguments of the current call. The machine's state is in a global ($acc), so that a restore that
;; forgets globals shows.
(module
  (import "weir:operator/output@0.2.0" "emit" (func $emit (param i32 i32 i32 i32 i32)))
  (import "weir:operator/log@0.2.0" "write" (func $log (param i32 i32 i32)))
  (import "weir:operator/metrics@0.2.0" "add" (func $add (param i32 i32 i64)))
  (import "weir:operator/state-writer@0.2.0" "write" (func $write (param i32 i32 i32 i32)))
  (memory (export "memory") 32)
  (data (i32.const 1024) "a line of the log")
  (data (i32.const 2048) "\07\07\07\07\07\07\07\07\07\07\07\07\07\07\07\07\07\07\07\07\07\07\07\07")
  ;; Never called: what it is, the test says.
  (func (export "weir:operator/lifecycle@0.2.0#describe") (result i32) unreachable)
  (global $acc (mut i64) (i64.const 1))
  (global $depth (mut i32) (i32.const 0))

  (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (i32.load (i32.const 8)))
    (if (i32.eqz (local.get $at)) (then (local.set $at (i32.const 0x100000))))
    (local.set $at (i32.and (i32.add (local.get $at) (i32.const 15)) (i32.const -16)))
    (i32.store (i32.const 8) (i32.add (local.get $at) (local.get $size)))
    (block $enough
      (loop $grow
        (br_if $enough (i32.le_u (i32.load (i32.const 8)) (i32.mul (memory.size) (i32.const 65536))))
        (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
        (br $grow)))
    (local.get $at))

  (func $ok (result i32)
    (i32.store (i32.const 8) (i32.const 0x100000))
    (i64.store (i32.const 64) (i64.const 0))
    (i64.store (i32.const 72) (i64.const 0))
    (i32.const 64))

  (func $failed (param $text i32) (param $length i32) (result i32)
    (i32.store (i32.const 8) (i32.const 0x100000))
    (i32.store (i32.const 64) (i32.const 1))
    (i32.store (i32.const 68) (local.get $text))
    (i32.store (i32.const 72) (local.get $length))
    (i32.const 64))

  (func $recurse (param $n i32) (result i32)
    (global.set $depth (i32.add (global.get $depth) (i32.const 1)))
    (i32.add (call $recurse (i32.add (local.get $n) (i32.const 1))) (i32.load (local.get $n))))

  ;; One step of a machine whose writes go all over 64 KiB..576 KiB and depend on everything before.
  (func $step (param $value i64)
    (local $at i32)
    (local.set $at (i32.add (i32.const 65536) (i32.and (i32.wrap_i64 (i64.shr_u (global.get $acc) (i64.const 20))) (i32.const 0x7fff8))))
    (i64.store (local.get $at) (i64.xor (i64.load (local.get $at)) (local.get $value)))
    (global.set $acc
      (i64.add
        (i64.mul (i64.rotl (global.get $acc) (i64.const 7)) (i64.const 6364136223846793005))
        (i64.add (i64.load (local.get $at)) (i64.extend_i32_u (memory.size))))))

  (func (export "weir:operator/lifecycle@0.2.0#open")
    (param $job i32) (param $job_n i32) (param $op i32) (param $op_n i32) (param $c i32) (param $c_n i32) (param $config i32) (param $config_n i32)
    (result i32)
    ;; `fail` as the configuration is refused.
    (if (i32.eq (local.get $config_n) (i32.const 4))
      (then (if (i32.eq (i32.load (local.get $config)) (i32.const 0x6c696166))
        (then (return (call $failed (local.get $config) (i32.const 4)))))))
    (memory.fill (i32.const 0x20000) (i32.const 7) (i32.const 0x4000))
    (global.set $acc (i64.const 0x123456789abcdef))
    ;; The rows of all 24 inputs.
    (i32.store (i32.const 8) (i32.const 0x100000))
    (i32.store (i32.const 64) (i32.const 0))
    (i32.store (i32.const 68) (i32.const 2048))
    (i32.store (i32.const 72) (i32.const 24))
    (i32.const 64))

  (func (export "weir:operator/lifecycle@0.2.0#process")
    (param $input i32) (param $rows i32) (param $has i32) (param $ts i32) (param $data_n i32)
    (result i32)
    (local $i i32) (local $vb i32)
    ;; Values lie behind times, ends of keys and of values, and keys.
    (if (local.get $rows) (then
      (local.set $vb
        (i32.add
          (i32.add (local.get $ts) (i32.shl (local.get $rows) (i32.const 4)))
          (i32.load (i32.sub (i32.add (local.get $ts) (i32.mul (local.get $rows) (i32.const 12))) (i32.const 4)))))))
    (block $default
    (block $wrong (block $name (block $text (block $amplify (block $step (block $fill (block $metrics (block $reject (block $fail (block $unreachable (block $echo (block $uneven
    (block $huge_emit (block $huge_list (block $huge_string (block $logs (block $flood (block $recurse (block $loop (block $grow (block $poke
      (br_table $poke $grow $loop $recurse $flood $logs $huge_string $huge_list $huge_emit $uneven $echo $unreachable $fail $reject $metrics $fill $step $amplify $text $name $wrong $default (local.get $input))
    ) ;; 0 poke: stores each value (8 bytes) at the address that is the row's timestamp
      (loop $more
        (if (i32.lt_u (local.get $i) (local.get $rows)) (then
          (i64.store
            (i32.wrap_i64 (i64.load (i32.add (local.get $ts) (i32.shl (local.get $i) (i32.const 3)))))
            (i64.load (i32.add (local.get $vb) (i32.shl (local.get $i) (i32.const 3)))))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br $more))))
      (return (call $ok))
    ) ;; 1 grow by the first row's timestamp; fails if the host says no
      (if (i32.eq (memory.grow (i32.wrap_i64 (i64.load (local.get $ts)))) (i32.const -1))
        (then (return (call $failed (i32.const 1024) (i32.const 6)))))
      (return (call $ok))
    ) ;; 2 loop for ever
      (loop $ever (br $ever))
      unreachable
    ) ;; 3 recurse for ever
      (return (call $recurse (i32.const 0)))
    ) ;; 4 emit for ever
      (loop $ever
        (call $emit (i32.const 0) (local.get $rows) (local.get $has) (local.get $ts) (local.get $data_n))
        (br $ever))
      unreachable
    ) ;; 5 log 100,000 lines
      (loop $more
        (call $log (i32.const 1) (i32.const 1024) (i32.const 17))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $more (i32.lt_u (local.get $i) (i32.const 100000))))
      (return (call $ok))
    ) ;; 6 an error longer than memory
      (return (call $failed (i32.const 1024) (i32.const -16)))
    ) ;; 7 more rejections than memory holds
      (i32.store (i32.const 64) (i32.const 0))
      (i32.store (i32.const 68) (i32.const 1024))
      (i32.store (i32.const 72) (i32.const 0x7fffffff))
      (return (i32.const 64))
    ) ;; 8 emit columns longer than memory
      (call $emit (i32.const 0) (i32.const 0x1fffffff) (i32.const 7) (i32.const 0) (i32.const -1))
      unreachable
    ) ;; 9 emit columns that do not agree
      (call $emit (i32.const 0) (i32.add (local.get $rows) (i32.const 1)) (local.get $has) (local.get $ts) (local.get $data_n))
      unreachable
    ) ;; 10 echo on port 3
      (call $emit (i32.const 3) (local.get $rows) (local.get $has) (local.get $ts) (local.get $data_n))
      (return (call $ok))
    ) ;; 11
      unreachable
    ) ;; 12 echo, then fail
      (call $emit (i32.const 0) (local.get $rows) (local.get $has) (local.get $ts) (local.get $data_n))
      (return (call $failed (i32.const 1024) (i32.const 6)))
    ) ;; 13 reject the row whose index is the first timestamp
      (i64.store (i32.const 80) (i64.load (local.get $ts)))
      (i32.store (i32.const 84) (i32.const 1024))
      (i32.store (i32.const 88) (i32.const 6))
      (i32.store (i32.const 64) (i32.const 0))
      (i32.store (i32.const 68) (i32.const 80))
      (i32.store (i32.const 72) (i32.const 1))
      (i32.store (i32.const 8) (i32.const 0x100000))
      (return (i32.const 64))
    ) ;; 14 use 1,000 names of counters, apart by the first timestamp
      (loop $more
        (i32.store8 (i32.const 1024) (i32.add (i32.const 48) (i32.rem_u (local.get $i) (i32.const 64))))
        (i32.store8 (i32.const 1025) (i32.add (i32.const 48) (i32.div_u (local.get $i) (i32.const 64))))
        (i32.store8 (i32.const 1026) (i32.wrap_i64 (i64.load (local.get $ts))))
        (call $add (i32.const 1024) (i32.const 3) (i64.const 1))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $more (i32.lt_u (local.get $i) (i32.const 1000))))
      (return (call $ok))
    ) ;; 15 fill: from the first timestamp, the second's number of bytes, with the third
      (memory.fill
        (i32.wrap_i64 (i64.load (local.get $ts)))
        (i32.wrap_i64 (i64.load offset=16 (local.get $ts)))
        (i32.wrap_i64 (i64.load offset=8 (local.get $ts))))
      (return (call $ok))
    ) ;; 16 step the machine once per row with its timestamp; grow now and then; emit the state
      (loop $more
        (if (i32.lt_u (local.get $i) (local.get $rows)) (then
          (call $step (i64.load (i32.add (local.get $ts) (i32.shl (local.get $i) (i32.const 3)))))
          (if (i64.eqz (i64.and (global.get $acc) (i64.const 0x1ff))) (then (drop (memory.grow (i32.const 1)))))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br $more))))
      ;; Time and value.
      (i64.store (i32.const 128) (global.get $acc))
      (i32.store (i32.const 136) (i32.const 8))
      (i64.store (i32.const 140) (global.get $acc))
      (call $emit (i32.const 0) (i32.const 1) (i32.const 5) (i32.const 128) (i32.const 20))
      (return (call $ok))
    ) ;; 17 reject 1,000 times for the same reason of 1 MiB
      (loop $more
        (i32.store (i32.add (i32.const 0x30004) (i32.mul (local.get $i) (i32.const 12))) (i32.const 0x100000))
        (i32.store (i32.add (i32.const 0x30008) (i32.mul (local.get $i) (i32.const 12))) (i32.const 0x100000))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $more (i32.lt_u (local.get $i) (i32.const 1000))))
      (i32.store (i32.const 64) (i32.const 0))
      (i32.store (i32.const 68) (i32.const 0x30000))
      (i32.store (i32.const 72) (i32.const 1000))
      (return (i32.const 64))
    ) ;; 18 log what lies at 128 KiB, as many bytes as the first timestamp says, as often as the second
      (loop $more
        (call $log (i32.const 1) (i32.const 0x20000) (i32.wrap_i64 (i64.load (local.get $ts))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $more (i32.lt_u (local.get $i) (i32.wrap_i64 (i64.load offset=8 (local.get $ts))))))
      (return (call $ok))
    ) ;; 19 count under the name that lies at 128 KiB, as many bytes as the first timestamp says
      (call $add (i32.const 0x20000) (i32.wrap_i64 (i64.load (local.get $ts))) (i64.const 1))
      (return (call $ok))
    ) ;; 20 echo, then reject the row whose index is the first timestamp
      (call $emit (i32.const 0) (local.get $rows) (local.get $has) (local.get $ts) (local.get $data_n))
      (i64.store (i32.const 80) (i64.load (local.get $ts)))
      (i64.store (i32.const 84) (i64.const 1024))
      (i32.store (i32.const 64) (i32.const 0))
      (i32.store (i32.const 68) (i32.const 80))
      (i32.store (i32.const 72) (i32.const 1))
      (return (i32.const 64))
    )
    (unreachable))

  (func (export "weir:operator/lifecycle@0.2.0#advance") (param i64) (result i32) (call $ok))
  (func (export "weir:operator/lifecycle@0.2.0#finish") (result i32) (call $ok))

  (func (export "weir:operator/portable@0.2.0#save") (result i32)
    ;; Key and value.
    (i32.store (i32.const 128) (i32.const 0))
    (i32.store (i32.const 132) (i32.const 8))
    (i64.store (i32.const 136) (global.get $acc))
    (call $write (i32.const 1) (i32.const 6) (i32.const 128) (i32.const 16))
    (call $ok))
  (func (export "weir:operator/portable@0.2.0#load")
    (param $rows i32) (param $has i32) (param $data i32) (param $data_n i32) (param $by i32) (param $by_n i32)
    (result i32)
    (global.set $acc (i64.load offset=8 (local.get $data)))
    (call $ok))
)
