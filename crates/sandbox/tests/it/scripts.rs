//! What a script can do.

use crate::harness::{Echo, limits, run, run_with, runner, value};
use serde_json::json;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use toolyard_sandbox::{Cause, Limits};

#[toolyard_shows::shows("001-1-03", "001-6-01")]
#[tokio::test]
async fn a_script_is_the_body_of_an_async_function() {
    assert_eq!(value("return 1 + 1").await, json!(2));
    assert_eq!(
        value("return await Promise.resolve({a:[1,'é',null,true,1.5]})").await,
        json!({"a":[1,"é",null,true,1.5]})
    );
    assert_eq!(value("").await, json!(null), "nothing returned is null");
    assert_eq!(value("return 5 // the end").await, json!(5), "a comment does not swallow the wrapper");
    assert_eq!(value("return 10n ** 20n").await, json!("100000000000000000000"), "what JSON cannot say becomes text");
    assert_eq!(value("const a = {}; a.a = a; return a").await, json!("[object Object]"), "so does a circle");
    assert_eq!(value("return () => 1").await, json!("() => 1"));
    assert_eq!(value("return [undefined, NaN]").await, json!([null, null]));
}

#[toolyard_shows::shows("001-1-04")]
#[tokio::test]
async fn the_bridge_answers_and_its_errors_are_exceptions() {
    let search = value("return await openclaw.tools.search('send mail', {limit: 3})").await;
    assert_eq!(search, json!({"method":"search","args":["send mail",{"limit":3}]}));
    let describe = value("return await openclaw.tools.describe('a:b:c')").await;
    assert_eq!(describe, json!({"method":"describe","args":["a:b:c"]}));
    let caught = value("try { await openclaw.tools.call('fail') } catch (e) { return [e.name, e.message, e.code, e instanceof Error] }").await;
    assert_eq!(caught, json!(["ToolError", "no such thing", "NOT_FOUND", true]));
    let many =
        value("return (await Promise.all(['a','b','c'].map(q => openclaw.tools.search(q)))).map(r => r.args[0])").await;
    assert_eq!(many, json!(["a", "b", "c"]));
}

#[tokio::test]
async fn a_handle_is_lazy_and_what_was_started_is_waited_for() {
    let echo = Arc::new(Echo::default());
    run_with("openclaw.tools.call('a'); return 1", limits(20_000), &echo).await.unwrap();
    assert_eq!(echo.asked.load(Ordering::SeqCst), 0, "nobody waited for it");

    let echo = Arc::new(Echo::default());
    let finished =
        run_with("openclaw.tools.call('short').then(() => console.log('late')); return 'first'", limits(20_000), &echo)
            .await
            .unwrap();
    assert_eq!(finished.value, json!("first"));
    assert_eq!(finished.logs, ["late"], "what was started ends before the result");
    let twice = value("const h = openclaw.tools.call('x'); const [a, b] = [await h, await h]; return a === b").await;
    assert_eq!(twice, json!(true), "one handle asks once");
}

#[tokio::test]
async fn requests_at_once_are_bounded() {
    let echo = Arc::new(Echo::default());
    let code = "await Promise.all(Array.from({length: 30}, () => openclaw.tools.call('short'))); return 1";
    run_with(code, Limits { bridge_at_once: 3, ..limits(20_000) }, &echo).await.unwrap();
    assert_eq!(echo.asked.load(Ordering::SeqCst), 30);
    assert_eq!(echo.most_at_once.load(Ordering::SeqCst), 3);
}

#[toolyard_shows::shows("001-6-09")]
#[tokio::test]
async fn the_console_gives_lines() {
    let finished = run("console.log('a', 1, {b: 2}); console.warn([1]); console.error(new TypeError('x')); return 0")
        .await
        .unwrap();
    assert_eq!(finished.logs, ["a 1 {\"b\":2}", "[1]", "TypeError: x"]);
}

#[tokio::test]
async fn exceptions_and_syntax_errors_say_what_and_where() {
    let failure = run("console.log('before');\nthrow new RangeError('too much')").await.unwrap_err();
    assert_eq!(failure.logs, ["before"]);
    let Cause::Threw(thrown) = failure.cause else { panic!("{:?}", failure.cause) };
    assert_eq!((thrown.name.as_str(), thrown.message.as_str()), ("RangeError", "too much"));
    assert!(thrown.stack.unwrap().contains("script.js:2"));
    let Cause::Threw(thrown) = run("let x = ;").await.unwrap_err().cause else { panic!() };
    assert_eq!(thrown.name, "SyntaxError");
    let Cause::Threw(thrown) = run("throw 'just text'").await.unwrap_err().cause else { panic!() };
    assert_eq!(thrown.message, "just text");
}

#[tokio::test]
async fn a_script_that_waits_for_nothing_ends_at_once() {
    // The cause says that its time was not waited for.
    let failure = run("await new Promise(() => {})").await.unwrap_err();
    assert!(failure.cause.to_string().contains("nothing will settle"), "{failure:?}");
}

#[toolyard_shows::shows("001-6-07", "001-6-08")]
#[tokio::test]
async fn the_parent_holds_the_clock_and_the_abort() {
    for code in ["for (;;) {}", "await openclaw.tools.search('x'); for (;;) {}", "await openclaw.tools.call('slow')"] {
        let echo = Arc::new(Echo::default());
        let failure = run_with(code, limits(1_000), &echo).await.unwrap_err();
        assert_eq!(failure.cause, Cause::TimedOut(1_000), "{code}");
        assert_eq!(echo.under_way.load(Ordering::SeqCst), 0, "{code}: nothing is left under way");
    }
    let cancel = CancellationToken::new();
    let later = cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        later.cancel();
    });
    let failure = runner().run("for (;;) {}", limits(600_000), Arc::new(Echo::default()), cancel).await.unwrap_err();
    assert_eq!(failure.cause, Cause::Aborted);
}

#[tokio::test]
async fn scripts_that_cannot_be_run_are_refused() {
    for code in ["\0".to_owned(), " ".repeat(300 << 10)] {
        assert!(matches!(run(&code).await.unwrap_err().cause, Cause::Refused(_)));
    }
}

#[tokio::test]
async fn without_the_program_nothing_runs() {
    let runner = toolyard_sandbox::ScriptRunner::with_program("/nonexistent/program");
    let reason = runner.probe().await.unwrap_err();
    assert!(reason.contains("cannot be isolated"), "{reason}");
    // A program that is not a child of ours ends without a word.
    let other = toolyard_sandbox::ScriptRunner::with_program("/bin/true");
    assert!(other.probe().await.unwrap_err().contains("exited with code 0"));
    crate::harness::runner().probe().await.unwrap();
}

#[tokio::test]
async fn timers_fire_in_order_and_end_with_the_script() {
    // A busy machine may set a timer long after the one before it: two of them are ordered by their times only where the
    // later one is a minute away.
    let code = "const seen = []; setTimeout(() => seen.push('too late'), 60000); \
        clearTimeout(setTimeout(() => seen.push('never'), 5)); queueMicrotask(() => seen.push('m')); \
        const done = new Promise(end => { let n = 0; setTimeout(a => { seen.push(a); setTimeout(() => { seen.push('b'); \
        const every = setInterval(() => { seen.push('i'); if (++n === 2) { clearInterval(every); end() } }, 10); \
        }, 20) }, 1, 'a') }); \
        await done; return seen";
    assert_eq!(value(code).await, json!(["m", "a", "b", "i", "i"]));
    let finished = run("setInterval(() => {}, 1); setTimeout(() => console.log('late'), 60000); return 'first'").await;
    assert_eq!(finished.unwrap().value, json!("first"), "nobody waits for a timer of a script that has ended");
    let threw =
        run("setTimeout(() => { throw new Error('oops') }); await new Promise(end => setTimeout(end, 20))").await;
    assert_eq!(threw.unwrap().logs, ["Uncaught in a timer: Error: oops"]);
    let many =
        value("try { for (let n = 0; n < 300; n++) setTimeout(() => {}, 1000) } catch (e) { return e.message }").await;
    assert_eq!(many, json!("a script may have 256 timers at once"));
    let slow =
        run_with("await new Promise(end => setTimeout(end, 60000))", limits(1_000), &Arc::new(Echo::default())).await;
    assert!(matches!(slow.unwrap_err().cause, Cause::TimedOut(1_000)), "the script's own time holds");
}

#[tokio::test]
async fn addresses_text_copies_and_random_ids_are_there() {
    for (code, expected) in [
        (
            "const u = new URL('../p?q=1#h', 'https://u@ex.org:8080/a/b/c'); u.searchParams.append('z', 'a b'); \
          u.port = '443'; u.port = 'x'; return [u.href, u.host, u.searchParams.get('q'), URL.canParse('nope')]",
            json!(["https://u@ex.org/a/p?q=1&z=a+b#h", "ex.org", "1", false]),
        ),
        ("try { new URL('nope') } catch (e) { return [e.name, e.message] }", json!(["TypeError", "Invalid URL"])),
        (
            "const p = new URLSearchParams({a: '1', b: 'x y'}); p.set('a', 'é'); return [p.toString(), [...p.keys()]]",
            json!(["a=%C3%A9&b=x+y", ["a", "b"]]),
        ),
        (
            "return [[...new TextEncoder().encode('é€😀')], new TextDecoder().decode(new Uint8Array([0xef, 0xbb, 0xbf, 0xc3, 0xa9, 0xff]))]",
            json!([[195, 169, 226, 130, 172, 240, 159, 152, 128], "é\u{fffd}"]),
        ),
        (
            "return [btoa('hello'), atob('aGVsbG8='), atob(btoa('\\xff\\x00')).charCodeAt(0)]",
            json!(["aGVsbG8=", "hello", 255]),
        ),
        (
            "const a = {d: new Date(5), m: new Map([[1, {x: [1]}]])}; a.self = a; const b = structuredClone(a); \
          b.m.get(1).x.push(2); return [b.self === b, b.d.getTime(), a.m.get(1).x.length]",
            json!([true, 5, 1]),
        ),
        ("try { structuredClone(() => 1) } catch (e) { return e.name }", json!("DataCloneError")),
        (
            "const [a, b] = [crypto.randomUUID(), crypto.randomUUID()]; \
          return [/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(a), a !== b, crypto.getRandomValues(new Uint8Array(4)).length]",
            json!([true, true, 4]),
        ),
    ] {
        assert_eq!(value(code).await, expected, "{code}");
    }
}
