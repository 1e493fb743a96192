#!/usr/bin/env python3
"""Usage: run.py j0|j1|j2|j3|j4|j5|j6|j7|all [--reps N] [--only SUBSTRING | --case NAME] [--quick | --warm-up S --window S] [--print]

Appends one JSON line per run to results/<job>.jsonl. With --print, that line goes to stdout as well, and nothing else does.
"""
import argparse, os, uuid
from flinkbench import *

PAR = ["-XX:+UseParallelGC"]
CK1 = {"execution.checkpointing.interval": "1s"}
REPS, ONLY, CASE, PRINT, WARM, MEAS = 3, "", "", False, 20, 20


def gate(limit=0.35, timeout=150):
    t0 = now()
    while now() - t0 < timeout:
        l = other_load(2.0)
        if l <= limit: return l
    return l


def runs(job, cases):
    """cases: list of (name, fn). Interleaves the repetitions so that slow drift of the host hits all cases alike."""
    for rep in range(REPS):
        for name, fn in cases:
            if ONLY not in name or (CASE and name != CASE): continue
            g = gate(); t0 = now()
            try: r = fn()
            except Exception as e: r = {"error": repr(e)[:1500]}
            r.update(case=name, rep=rep, gate_load=round(g, 2), wall_s=round(now() - t0, 1), at=time.strftime("%H:%M:%S"))
            save(job, r)
            if PRINT:
                print(json.dumps(r), flush=True)
                continue
            brief = {k: (round(v, 3) if isinstance(v, float) else v) for k, v in r.items() if k in ("rate", "cpu_s_per_M", "other_cores", "error", "summary", "case", "rep", "wall_s")}
            print(job, json.dumps(brief), flush=True)


def ckpt_summary(cks):
    s = {"n": len(cks)}
    for k in ("end_to_end_duration", "state_size", "checkpointed_size", "persisted_data", "processed_data"):
        s[k] = mmm([c[k] for c in cks])
    if cks and "vertices" in cks[0]:
        def op(c): return max(c["vertices"].values(), key=lambda v: sum(v["state"]))  # the stateful vertex
        for k in ("align", "start_delay", "sync", "async"): s["op_" + k + "_max"] = mmm([max(op(c)[k]) for c in cks])
        s["n_unaligned"] = sum(any(any(v["unaligned"]) for v in c["vertices"].values()) for c in cks)
    return s


def throughput(job, args, conf=None, tms=1, jvm=(), op="op"):
    def f():
        with Cluster(conf, tms, "w", jvm_tm=jvm) as c:
            c.start(); jid = c.submit(job, args); c.wait_first(1, op); time.sleep(WARM)
            t0 = now(); r = steady(c, MEAS, op=op)
            cks, counts = c.checkpoints(jid, detail=True, after=t0)
            r.update(rss=c.rss(), ck=ckpt_summary(cks), ck_counts=counts)
            if job == "window": r["windows"] = round(c.total_at(now(), "win"))
            return r
    return f


TWO = {"taskmanager.numberOfTaskSlots": 1}


def j0():
    runs("j0", [
        ("src-ceiling (source->map->discard, chained, no shuffle)", throughput("src", {})),
        ("own b1 1TM", throughput("j0", {})),
        ("own b64 1TM", throughput("j0", {"batch": 64})),
        ("own b1 1TM ParallelGC", throughput("j0", {}, jvm=PAR)),
        ("own b1 2TM", throughput("j0", {}, TWO, 2)),
        ("dg+pojo 1TM", throughput("j0", {"src": "dg", "ser": "pojo"})),
    ])


def j1():
    cs = []
    for k, n in ((10_000, "10k"), (1_000_000, "1M")):
        cs += [(f"K={n} G1", throughput("count", {"k": k}, CK1)), (f"K={n} ParallelGC", throughput("count", {"k": k}, CK1, jvm=PAR))]
    cs += [("K=1M ParallelGC b64", throughput("count", {"k": 1_000_000, "batch": 64}, CK1, jvm=PAR)),
           ("K=1M ParallelGC dg+pojo", throughput("count", {"k": 1_000_000, "src": "dg", "ser": "pojo"}, CK1, jvm=PAR)),
           ("K=1M ParallelGC nockpt", throughput("count", {"k": 1_000_000}, {}, jvm=PAR)),
           ("K=1M ParallelGC 2TM", throughput("count", {"k": 1_000_000}, {**CK1, **TWO}, 2, jvm=PAR))]
    runs("j1", cs)


def j2():
    runs("j2", [("K=1M rocksdb incr", throughput("count", {"k": 1_000_000}, {**CK1, **ROCKS})),
                ("K=1M rocksdb nockpt", throughput("count", {"k": 1_000_000}, ROCKS))])


def j3():
    runs("j3", [("K=10k ParallelGC ckpt1s", throughput("window", {"k": 10_000}, CK1, jvm=PAR)),
                ("K=10k G1 ckpt1s", throughput("window", {"k": 10_000}, CK1))])


def slow(vs, extra, jobargs=None, need=12, fill=30):
    conf = {"execution.checkpointing.interval": "2s", **extra}
    def f():
        with Cluster(conf, 1, "w", jvm_tm=PAR) as c:
            c.start(); jid = c.submit("slow", {"k": 10_000, "vs": vs, "mask": 31, **(jobargs or {})}); c.wait_first(1); time.sleep(fill)
            t0 = now(); n0 = c.total_at(t0)
            while True:
                time.sleep(2)
                cks, counts = c.checkpoints(jid, after=t0)
                if len(cks) >= need or now() - t0 > 300: break
            t1 = now(); time.sleep(0.5); rate = (c.total_at(t1) - n0) / (t1 - t0)
            cks, counts = c.checkpoints(jid, detail=True, after=t0)
            return {"rate": rate, "summary": ckpt_summary(cks), "cks": cks, "ck_counts": counts, "rss": c.rss()}
    return f


UN = {"execution.checkpointing.unaligned.enabled": "true"}
AT = {**UN, "execution.checkpointing.aligned-checkpoint-timeout": "500ms"}


def j4():
    cs = []
    for vs in (64, 1024):
        cs += [(f"aligned vs={vs}", slow(vs, {})), (f"unaligned vs={vs}", slow(vs, UN)), (f"aligned-timeout-500ms vs={vs}", slow(vs, AT))]
    cs += [("aligned+debloat vs=64", slow(64, {"taskmanager.network.memory.buffer-debloat.enabled": "true"})),
           ("aligned vs=64 parkNanos", slow(64, {}, {"park": "true"})), ("unaligned vs=64 parkNanos", slow(64, UN, {"park": "true"}))]
    runs("j4", cs)


def large(k, conf, rate, ckpt="5s", jvm=(), secs=55):
    cf = {**conf, **({"execution.checkpointing.interval": ckpt} if ckpt else {})}
    def f():
        with Cluster(cf, 1, "w", jvm_tm=jvm) as c:
            c.start(); jid = c.submit("large", {"k": k, "prefill": "true", "rate": rate, "mask": 31 if rate else 1023}); c.wait_first(1); t = now()
            while c.total_at(now()) < k:
                time.sleep(1)
                if now() - t > 400: raise RuntimeError("prefill too slow")
            fill = now() - t
            time.sleep(25); t0 = now()
            r = c.window(secs) if rate else steady(c, secs, tries=3)
            cks, counts = c.checkpoints(jid, detail=True, after=t0)
            s = sorted(r["per_s"])
            r.update(prefill_s=fill, summary={"ck": ckpt_summary(cks), "per_s_min_med_max": [s[0], s[len(s) // 2], s[-1]], "rate": round(r["rate"]), "cpu_cores": round(r["cpu_cores"], 2)},
                     cks=cks, ck_counts=counts, rss=c.rss())
            return r
    return f


BIG = {"taskmanager.memory.process.size": "8g"}


def j5():
    M2, M10 = 2_000_000, 10_000_000
    cs = [("2M hashmap 1%/s ParallelGC", large(M2, {}, 20_000, jvm=PAR)), ("2M hashmap 1%/s G1", large(M2, {}, 20_000)), ("2M rocksdb 1%/s", large(M2, ROCKS, 20_000)),
          ("2M hashmap max ParallelGC", large(M2, {}, 0, jvm=PAR, secs=30)), ("2M hashmap max ParallelGC nockpt", large(M2, {}, 0, None, jvm=PAR, secs=30)),
          ("2M hashmap max G1", large(M2, {}, 0, secs=30)),
          ("2M rocksdb max", large(M2, ROCKS, 0, secs=30)), ("2M rocksdb max nockpt", large(M2, ROCKS, 0, None, secs=30)),
          ("10M hashmap 1%/s ParallelGC 8g", large(M10, BIG, 100_000, jvm=PAR)), ("10M rocksdb 1%/s", large(M10, ROCKS, 100_000))]
    runs("j5", cs)


HB = {"heartbeat.interval": "500ms", "heartbeat.timeout": "2s"}
FAST = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 100, "restart-strategy.fixed-delay.delay": "100ms"}


def kill_tm(extra):
    def f():
        with Cluster({**CK1, **TWO, **extra}, 3, "w", jvm_tm=PAR) as c:
            c.start(); jid = c.submit("count", {"k": 1_000_000}); c.wait_first(2); time.sleep(30)
            w = c.window(5)
            busy = [t["id"] for t in http("/taskmanagers")["taskmanagers"] if t["freeSlots"] == 0]
            victim = c.tm_procs[int(busy[0][2:]) - 1]
            tk = now(); victim.kill(); victim.wait()
            # last record processed by the surviving subtask before the job stopped
            f2 = c.wait_first(2, after=tk, timeout=240)
            time.sleep(12); t1 = now(); rate = (c.total_at(t1) - c.total_at(t1 - 5)) / 5
            # first time the 1 s rate is back at 80% of the rate before (count only lines written after restart)
            ex = http(f"/jobs/{jid}/exceptions?maxExceptions=20").get("exceptionHistory", {}).get("entries", [])
            log = subprocess.run(["grep", "-hE", r"Job bench.*switched from state|was terminated|no longer reachable|Restoring job|timed out", f"{c.dir}/log/jm.log"], capture_output=True, text=True).stdout
            return {"summary": {"kill_to_first_s": round(f2[0] - tk, 3), "kill_to_both_s": round(f2[1] - tk, 3), "rate_before": round(w["rate"]), "rate_after": round(rate),
                                "n_exceptions": len(ex), "firsts": len(c.first(after=tk))},
                    "exceptions": [[round(e["timestamp"] / 1e3 - tk, 3), e["exceptionName"], e.get("taskName")] for e in ex], "log": log[-9000:], "other_cores": w["other_cores"]}
    return f


def upload(jar):
    b = uuid.uuid4().hex
    body = (f'--{b}\r\nContent-Disposition: form-data; name="jarfile"; filename="{os.path.basename(jar)}"\r\nContent-Type: application/x-java-archive\r\n\r\n').encode() + open(jar, "rb").read() + f"\r\n--{b}--\r\n".encode()
    r = urllib.request.Request(f"http://localhost:{REST}/jars/upload", data=body, headers={"Content-Type": f"multipart/form-data; boundary={b}"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(r) as f: return json.loads(f.read())["filename"].rsplit("/", 1)[1]


def savepoint_restart(via, fmt):
    def f():
        with Cluster({**CK1, **TWO}, 2, "w", jvm_tm=PAR) as c:
            c.start(); jid = c.submit("count", {"k": 1_000_000}); c.wait_first(2); time.sleep(30)
            rate = c.window(5)["rate"]
            jar2 = upload(JAR2) if via == "rest" else None
            t0 = now()
            if via == "cli":
                o = c.cli("stop", "--type", fmt, "--savepointPath", f"file://{c.dir}/savepoints", jid)
                sp = re.search(r"Path: (\S+)", o).group(1)
            else:
                tid = http(f"/jobs/{jid}/stop", "POST", {"targetDirectory": f"file://{c.dir}/savepoints", "drain": False, "formatType": fmt.upper()})["request-id"]
                while True:
                    s = http(f"/jobs/{jid}/savepoints/{tid}")
                    if s["status"]["id"] == "COMPLETED": break
                    time.sleep(0.02)
                sp = s["operation"]["location"]
                while http(f"/jobs/{jid}")["state"] != "FINISHED": time.sleep(0.02)
            t1 = now()
            last = max(int(x[1]) / 1e3 for _, ls in c.tick_lines("op") for x in ls if x[0] == "LAST")
            size = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(f"{c.dir}/savepoints") for f in fs)
            t2 = now()
            if via == "cli": c.submit("count", {"k": 1_000_000}, jar=JAR2, sp=sp, ticks="ticks2")
            else:
                c.ticks = f"{c.dir}/ticks2"
                http(f"/jars/{jar2}/run", "POST", {"entryClass": "bench.Bench", "parallelism": 2, "savepointPath": sp, "programArgsList": ["--job", "count", "--out", c.ticks, "--k", "1000000"]}, timeout=60)
            t3 = now()
            fs = c.wait_first(2)
            return {"summary": {"downtime_s": round(fs[0] - last, 3), "downtime_both_s": round(fs[1] - last, 3), "cmd_stop_s": round(t1 - t0, 3), "stop_issued_to_last_record_s": round(last - t0, 3),
                                "last_record_to_stop_return_s": round(t1 - last, 3), "cmd_run_s": round(t3 - t2, 3), "run_issued_to_first_s": round(fs[0] - t2, 3), "savepoint_MB": round(size / 1e6, 1), "rate": round(rate)}}
    return f


def j6():
    runs("j6", [("kill -9 TM, default heartbeats+restart", kill_tm({})), ("kill -9 TM, heartbeat 500ms/2s", kill_tm(HB)), ("kill -9 TM, heartbeat 500ms/2s, fixed-delay 100ms", kill_tm({**HB, **FAST})),
                ("stop-with-savepoint canonical, CLI", savepoint_restart("cli", "canonical")), ("stop-with-savepoint native, CLI", savepoint_restart("cli", "native")),
                ("stop-with-savepoint native, REST (jar pre-uploaded)", savepoint_restart("rest", "native"))])


def startup():
    with Cluster({}, 1, "w") as c:
        c.start(); time.sleep(20)
        c0, t0 = c.cpu(), now(); time.sleep(10); c1, t1 = c.cpu(), now()
        idle = c.rss(); s = {"cluster_ready_s": round(c.ready_s, 2), "idle_jm_mb": idle["jm_now_mb"], "idle_tm_mb": idle["tm_now_mb"][0],
                             "idle_cpu_cores": round((c1["jm"] + c1["tm"] - c0["jm"] - c0["tm"]) / (t1 - t0), 4)}
        for i in range(3):
            t0 = now(); jid = c.submit("j0", {"mask": 31}, ticks=f"ticks{i}"); t1 = now(); fs = c.wait_first(2)
            s[f"run{i}_to_first_s"] = round(fs[0] - t0, 2); s[f"run{i}_cli_s"] = round(t1 - t0, 2)
            http(f"/jobs/{jid}?mode=cancel", "PATCH")
            while http(f"/jobs/{jid}")["state"] != "CANCELED": time.sleep(0.05)
            time.sleep(1)
        return {"summary": s}


def j7(): runs("j7", [("startup", startup)])


if __name__ == "__main__":
    ap = argparse.ArgumentParser(usage=__doc__)
    ap.add_argument("jobs", nargs="+")
    ap.add_argument("--reps", type=int, default=3)
    ap.add_argument("--only", default="")
    ap.add_argument("--case", default="")
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--print", action="store_true")
    ap.add_argument("--warm-up", type=int)
    ap.add_argument("--window", type=int)
    a = ap.parse_args()
    REPS, ONLY, CASE, PRINT = a.reps, a.only, a.case, a.print
    if a.quick: WARM, MEAS = 6, 6
    WARM, MEAS = a.warm_up or WARM, a.window or MEAS
    jobs = ["j1", "j0", "j4", "j6", "j2", "j5", "j3", "j7"] if a.jobs == ["all"] else a.jobs
    for j in jobs: globals()[j]()
