import"./disclose-version-xihTtKlq.js";import{A as e,B as t,D as n,F as r,G as i,H as a,J as o,K as s,L as c,N as l,R as u,S as d,T as f,U as ee,V as p,W as m,X as h,Y as te,Z as g,b as ne,d as re,j as _,k as ie,n as ae,s as oe,u as se,w as v,y,z as b}from"./index-client-C0M6yOaC.js";import{t as ce}from"./diff-Dip28SSn.js";import{b as le,f as x,g as S,r as ue,s as de,t as fe,x as C}from"./index-DtMDMHCQ.js";import{n as pe}from"./form-CD4_41mu.js";import{n as me,t as he}from"./Dag-DY856LTd.js";import{n as w,t as T}from"./problem-XW2ypk9x.js";import{n as ge}from"./record-DKKiaaPQ.js";import{n as _e,r as ve}from"./text-BBhA6ItB.js";import{t as ye}from"./DiffView-2YBt3B_c.js";import{t as be}from"./Name-lj_QZeIN.js";var xe=`{
  "version": "1.0",
  "goal": "Add what is selected to the daily note",
  "riskLevel": "writes",
  "contextRequests": [{ "kind": "selection" }],
  "steps": [
    {
      "id": "append",
      "tool": "vault.writeFile",
      "args": { "path": "Daily/2026-03-14.md", "content": "$ctx.selection.text", "mode": "append" },
      "retry": { "maxAttempts": 2, "backoffMs": 100 },
      "timeoutMs": 10000,
      "preview": "Append the selection to the daily note"
    }
  ]
}
`,Se=`{
  "version": "1.0",
  "goal": "Show what a check finds: this plan cannot be run",
  "riskLevel": "read-only",
  "steps": [
    {
      "id": "list",
      "tool": "vault.listFiles",
      "args": { "recursive": "yes" }
    },
    {
      "id": "read",
      "tool": "vault.readNote",
      "args": { "path": "$steps.list.files[0].path" }
    },
    {
      "id": "write",
      "tool": "vault.createFile",
      "args": { "path": "Copy.md", "contents": "$steps.nowhere.content" },
      "dependsOn": ["publish"]
    },
    {
      "id": "publish",
      "tool": "util.slugifyTitle",
      "args": { "title": "$steps.write.path" }
    }
  ]
}
`,Ce=`{
  "version": "1.0",
  "goal": "Make a note for each idea on the list",
  "assumptions": ["Projects/Ideas.md holds one idea to a bullet at the top level"],
  "riskLevel": "writes",
  "steps": [
    {
      "id": "source",
      "tool": "vault.readFile",
      "args": { "path": "Projects/Ideas.md" },
      "preview": "Read the list"
    },
    {
      "id": "bullets",
      "tool": "util.parseMarkdownBullets",
      "args": { "text": "$steps.source.content", "allowNested": false },
      "captureAs": "ideas",
      "preview": "Take the items out of the list"
    },
    {
      "id": "folder",
      "tool": "vault.ensureFolder",
      "args": { "path": "Ideas" },
      "preview": "Make the folder Ideas"
    },
    {
      "id": "create",
      "tool": "vault.createFile",
      "args": {
        "path": "Ideas/{idea.text}.md",
        "content": "# {idea.text}\\n\\nFrom the list in [[Ideas]].\\n",
        "frontmatter": { "order": "{position}", "status": "open" }
      },
      "foreach": { "from": "$vars.ideas.items", "itemName": "idea", "indexName": "position", "concurrency": 4 },
      "dependsOn": ["folder"],
      "onError": "skip",
      "preview": "Create a note for each idea"
    },
    {
      "id": "mark",
      "tool": "vault.writeFile",
      "args": {
        "path": "Projects/Ideas.md",
        "content": "Each idea above has a note in the folder Ideas.",
        "mode": "append",
        "expectedEtag": "$steps.source.etag"
      },
      "dependsOn": ["create"],
      "preview": "Say so at the end of the list"
    }
  ]
}
`,we=`{
  "version": "1.0",
  "goal": "Put the garden project in progress",
  "riskLevel": "writes",
  "defaults": { "onError": "stop" },
  "steps": [
    {
      "id": "garden",
      "tool": "vault.readFile",
      "args": { "path": "Projects/Garden.md" },
      "preview": "Read the project"
    },
    {
      "id": "patch",
      "tool": "vault.patchFile",
      "args": {
        "path": "Projects/Garden.md",
        "expectedEtag": "$steps.garden.etag",
        "patch": {
          "operations": [
            { "op": "replace", "target": { "type": "frontmatter", "key": "status" }, "value": "in progress" },
            { "op": "insert", "target": { "type": "frontmatter", "key": "reviewed" }, "value": "2026-03-14" },
            { "op": "replace", "target": { "type": "text", "find": "- [ ] Fix the water barrel" }, "value": "- [x] Fix the water barrel" },
            { "op": "insert", "target": { "type": "heading", "path": ["Garden", "Log"] }, "position": "end", "value": "- 2026-03-14: the barrel holds water." }
          ]
        }
      },
      "preview": "Change the status, note the review and add to the log"
    }
  ]
}
`,Te=`{
  "version": "1.0",
  "goal": "Look at every note and find the open tasks",
  "riskLevel": "read-only",
  "steps": [
    {
      "id": "list",
      "tool": "vault.listFiles",
      "args": { "recursive": true, "extensions": ["md"] },
      "preview": "List all notes"
    },
    {
      "id": "read",
      "tool": "vault.readFile",
      "args": { "path": "{file.path}", "maxBytes": 4096 },
      "foreach": { "from": "$steps.list.items", "itemName": "file", "concurrency": 4 },
      "preview": "Read the beginning of each note"
    },
    {
      "id": "tasks",
      "tool": "vault.searchText",
      "args": { "query": "- [ ]", "caseSensitive": true, "limit": 100 },
      "preview": "Find open tasks"
    }
  ],
  "uiHints": { "title": "What is in the vault" }
}
`,Ee=`{
  "version": "1.0",
  "goal": "Move the compost note and keep every link to it alive",
  "riskLevel": "writes",
  "steps": [
    {
      "id": "move",
      "tool": "vault.rename",
      "args": { "fromPath": "Notes/Compost.md", "toPath": "Projects/Compost heap.md" },
      "preview": "Move Compost to the projects as \\"Compost heap\\""
    },
    {
      "id": "check",
      "tool": "vault.searchText",
      "args": { "query": "Compost heap" },
      "dependsOn": ["move"],
      "preview": "Find the links that now lead to it"
    }
  ]
}
`,De=n(`/ fork of <a class="mono"> </a>`,1),Oe=n(`<span class="st bad chip"><!>Not JSON</span>`),ke=n(`<span class="st bad chip"><!> </span>`),Ae=n(`<span class="st warn chip"><!> </span>`),je=n(`<span class="st ok chip"><!>No errors</span>`),Me=n(`<option> </option>`),Ne=n(`<div class="mb2"><!></div>`),Pe=n(`<div class="panel"><header><h2>Order</h2><span class="small dim">solid: waits for, stitched: uses</span></header><div class="in"><!></div></div>`),Fe=n(`<div class="field"><label for="fork-from">Run again from</label><select class="input mono" id="fork-from"><option>the beginning, as a new run</option><!></select><span class="hint">Results of the steps before it are taken over from the run.</span></div>`),Ie=n(`<div class="problem"><!><div><p class="wrap"><!></p><p class="code-name wrap"> </p></div></div>`),Le=n(`<p class="small dim mt"><!> <b> </b> </p>`),Re=n(`<div><div class="line mb"><h2 class="grow"> </h2><span class="small dim"> </span></div> <!> <!></div>`),ze=n(`The run is bound to preview <span class="mono"> </span>. If a note changes before, it is refused.`,1),Be=n(`A new run from <b> </b> on.`,1),Ve=n(`<div class="head"><div><p class="crumb"><a href="/plans">Plans</a><!></p><h1 class="wrap"><!></h1> <p class="sub line flow"><!><span> </span></p></div> <div class="acts svelte-1559dfm"><label class="vh" for="ex">Start from an example</label><select class="input svelte-1559dfm" id="ex"><option>Examples</option><!></select><button class="btn" type="button"> </button><button class="btn" type="button"> </button></div></div> <!> <div class="plan-grid"><section class="plan-ed" aria-label="Editor"><div class="editor host svelte-1559dfm"></div><p class="small dim mt keys"><span><kbd>Ctrl</kbd><kbd>Space</kbd> what fits here</span><span><kbd>Ctrl</kbd><kbd>Enter</kbd> dry run</span><span><kbd>F8</kbd> next finding</span></p></section> <section class="plan-side stack svelte-1559dfm" aria-label="What it would do"><!> <!> <!> <!></section></div> <div class="decide"><div class="grow small dim"><!></div><button class="btn primary" type="button"><!> </button></div>`,1);function E(e,n){te(n,!0);let E=Object.entries(Object.assign({"../../../examples/plans/append-selection.json":xe,"../../../examples/plans/fails-check.json":Se,"../../../examples/plans/notes-from-bullets.json":Ce,"../../../examples/plans/patch-front-matter.json":we,"../../../examples/plans/read-summary.json":Te,"../../../examples/plans/rename-with-links.json":Ee})).map(([e,t])=>({name:e.slice(e.lastIndexOf(`/`)+1),text:t})),D=le.route.query.get(`from`)??``,O=i(void 0),k=null,A=i(`{
  "version": "1.0",
  "goal": "",
  "riskLevel": "read-only",
  "steps": [
    { "id": "first", "tool": "", "args": {} }
  ]
}
`),j=i(ee(D?``:`New plan`)),He=[],M=i(null),N=i(null),P=i(null),F=i(``),I=i(``),Ue,L=s(()=>{try{return JSON.parse(l(A))}catch{return null}}),R=s(()=>l(L)?.steps?.filter(e=>e&&typeof e.id==`string`)??[]),z=s(()=>l(P)!==null&&l(P).text===l(A)),B=s(()=>l(N)?.text===l(A)?l(N).report:null),We=s(()=>l(P)?ce(l(P).report.diff):[]);u(()=>{document.title=`${l(j)||`Plan`} · Toolyard`}),u(()=>{let e=l(O);if(!e)return;let t=null,n=!1;return r(async()=>{let{PlanEditor:r}=await fe(async()=>{let{PlanEditor:e}=await import(`./editor-DOCR6Lnj.js`);return{PlanEditor:e}},[]);n||(t=k=new r(e,l(A),()=>He,Je,()=>void Xe()))}),()=>{n=!0,t?.destroy(),k=null}}),u(()=>{C.live&&r(()=>void Ke())});let Ge=!1;async function Ke(){if(!Ge){Ge=!0;try{if(He=(await C.call(`tools.list`,{schemas:!0})).tools.map(e=>({name:e.name,description:e.description,args:pe(e.inputSchema).map(e=>({name:e.name,required:e.required,hint:e.hint}))})),D){let e=(await C.call(`runs.record`,{runId:D,from:1,limit:1})).frames[0],t=e?ge(e.payload):null;if(!t?.plan)throw new T({code:`PRECONDITION_FAILED`,message:`This run has no plan.`,suggestion:`Only runs of plans can be forked.`});qe(t.plan.goal??ve(D),JSON.stringify(t.plan,null,2)+`
`)}}catch(e){m(M,w(e))}}}function qe(e,t){m(j,e,!0),m(A,t,!0),m(P,null),k?.set(t),Je(t)}function Je(e){m(A,e,!0),clearTimeout(Ue),Ue=setTimeout(()=>void Ye(),500)}async function Ye(){if(!C.live||!l(L)||l(R).every(e=>!e.tool))return;let e=l(A);try{let t=await C.call(`plans.check`,{plan:l(L)});if(e!==l(A))return;m(N,{text:e,report:t});let n=[...t.errors.map(e=>({path:e.path,message:e.message,error:!0})),...t.warnings.map(e=>({path:e.path,message:e.message,error:!1}))];k?.issues(n),m(M,null)}catch(t){e===l(A)&&m(M,w(t))}}async function Xe(){if(!C.live||!l(L)||!C.mayAct)return;let e=l(A);m(F,`dry`),m(M,null);try{let t=await C.call(`plans.dryRun`,{plan:l(L)});m(P,{text:e,report:t,at:Date.now()}),t.error&&m(M,new T({code:t.error.code,message:t.error.message,suggestion:t.error.suggestion??void 0}))}catch(e){m(M,w(e))}finally{m(F,``)}}async function Ze(){if(!l(P)||!l(z)||!l(L))return;m(F,`run`),m(M,null);let{planHash:e,policyHash:t,previewHash:n}=l(P).report,r={approved:!0,planHash:e,policyHash:t,previewHash:n};try{let e=D&&l(I)?await C.call(`plans.fork`,{runId:D,from:l(I),plan:l(L),consent:{approved:!0}}):await C.call(`plans.run`,{plan:l(L),consent:r,detach:!0});le.go(`/runs/${e.runId}`)}catch(e){m(M,w(e)),l(M).code===`CONFIRMATION_REQUIRED`&&m(M,new T({code:l(M).code,message:`What would change is not what the dry run showed: something was changed meanwhile. Nothing ran.`,suggestion:`Make the dry run again, look at it, and run that.`}))}finally{m(F,``)}}let Qe=s(()=>new Set(l(R).map(e=>e.id))),$e=s(()=>l(R).map(e=>({id:e.id,title:e.id,detail:e.tool??``,loop:!!e.foreach,state:tt(e)}))),et=s(()=>l(R).flatMap(e=>{let t=new Set(Array.isArray(e.dependsOn)?e.dependsOn:[]),n=me([e.args,e.foreach],l(Qe));return[...[...t].map(t=>({from:t,to:e.id,reference:!1})),...[...n].filter(e=>!t.has(e)).map(t=>({from:t,to:e.id,reference:!0}))]}));function tt(e){let t=l(z)?l(P)?.report.steps.find(t=>t.id===e.id):void 0;return t?t.status===`ok`?`ok`:t.status===`skipped`?`skip`:t.status?`fail`:`wait`:l(B)?.errors.some(t=>t.step===e.id)?`fail`:l(B)?.warnings.some(t=>t.step===e.id)?`warned`:l(B)?`ok`:`wait`}let V=s(()=>l(P)?.report.effects),nt=s(()=>{let e=[],t=(t,n)=>{t&&e.push(`${n} ${t}`)};return t(l(V)?.created?.length,`create`),t(l(V)?.modified?.length,`change`),t(l(V)?.renamed?.length,`rename`),t(l(V)?.deleted?.length,`delete`),e.length?`Run, ${e.join(`, `)}`:`Run`}),rt=s(()=>(l(V)?.created?.length??0)+(l(V)?.modified?.length??0)+(l(V)?.renamed?.length??0)+(l(V)?.deleted?.length??0));var it=Ve(),H=t(it),U=b(H),W=b(U),at=a(b(W)),ot=e=>{var n=De(),r=a(t(n)),i=p(r,!0);c(e=>{oe(r,`href`,`/runs/${D}`),v(i,e)},[()=>ve(D)]),f(e,n)};d(at,e=>{D&&e(ot)}),g(W);var G=a(W),st=b(G);{let e=s(()=>l(j)||`Fork of a run`);be(st,{get text(){return l(e)}})}g(G);var ct=a(G,2),lt=b(ct),ut=e=>{var t=Oe(),n=b(t);S(n,{name:`st-bad`,kind:``}),h(),g(t),f(e,t)},dt=e=>{var t=ke(),n=b(t);S(n,{name:`st-bad`,kind:``});var r=a(n,1,!0);g(t),c(e=>v(r,e),[()=>x(l(B).errors.length,`error`)]),f(e,t)},ft=e=>{var t=Ae(),n=b(t);S(n,{name:`st-warn`,kind:``});var r=a(n,1,!0);g(t),c(e=>v(r,e),[()=>x(l(B).warnings.length,`warning`)]),f(e,t)},pt=e=>{var t=je(),n=b(t);S(n,{name:`st-ok`,kind:``}),h(),g(t),f(e,t)};d(lt,e=>{l(L)?l(B)&&l(B).errors.length>0?e(dt,1):l(B)&&l(B).warnings.length>0?e(ft,2):l(B)&&e(pt,3):e(ut)});var mt=a(lt),ht=p(mt);g(ct),g(U);var gt=a(U,2),K=a(b(gt)),q=b(K);q.value=q.__value=``;var _t=a(q);y(_t,17,()=>E,e=>e.name,(e,t)=>{var n=Me(),r=p(n,!0),i={};c(()=>{v(r,l(t).name),i!==(i=l(t).name)&&(n.value=(n.__value=i)??``)}),f(e,n)}),g(K);var J=a(K),vt=p(J,!0),Y=a(J),yt=p(Y,!0);g(gt),g(H);var bt=a(H,2),xt=e=>{var t=Ne(),n=b(t);ue(n,{get problem(){return l(M)}}),g(t),f(e,t)};d(bt,e=>{l(M)&&e(xt)});var X=a(bt,2),Z=b(X),St=b(Z);ae(St,e=>m(O,e),()=>l(O)),h(),g(Z);var Ct=a(Z,2),wt=b(Ct),Tt=e=>{var t=Pe(),n=a(b(t)),r=b(n);he(r,{get nodes(){return l($e)},get edges(){return l(et)},get selected(){return l(I)},select:e=>m(I,e,!0)}),g(n),g(t),f(e,t)};d(wt,e=>{l($e).length>0&&e(Tt)});var Et=a(wt,2),Dt=e=>{var t=Fe(),n=a(b(t)),r=b(n);r.value=r.__value=``;var i=a(r);y(i,17,()=>l(R),e=>e.id,(e,t)=>{var n=Me(),r=p(n,!0),i={};c(()=>{v(r,l(t).id),i!==(i=l(t).id)&&(n.value=(n.__value=i)??``)}),f(e,n)}),g(n),re(n),h(),g(t),se(n,()=>l(I),e=>m(I,e)),f(e,t)};d(Et,e=>{D&&l(R).length>0&&e(Dt)});var Ot=a(Et,2);y(Ot,17,()=>[...l(B)?.errors??[],...l(B)?.warnings??[]].slice(0,12),ne,(e,t,n)=>{var r=Ie(),i=b(r);{let e=s(()=>n<(l(B)?.errors.length??0)?`st-bad`:`st-warn`);S(i,{get name(){return l(e)},kind:``})}var o=a(i),u=b(o),d=b(u);be(d,{get text(){return l(t).message}}),g(u);var ee=a(u),m=p(ee);g(o),g(r),c(()=>v(m,`${l(t).type??``} ${l(t).path??``}`)),f(e,r)});var kt=a(Ot,2),At=e=>{var t=Re(),n=b(t),r=b(n),i=p(r),o=a(r),s=p(o);g(n);var u=a(n,2);y(u,17,()=>l(We),ne,(e,t,n)=>{ye(e,{get file(){return l(t)},open:n<2})});var d=a(u,2);y(d,17,()=>l(P).report.steps.filter(e=>e.status!==`ok`),e=>e.id,(e,t)=>{var n=Le(),r=b(n);S(r,{name:`st-skip`,kind:`inl`});var i=a(r,2),o=p(i,!0),s=a(i);g(n),c(()=>{v(o,l(t).id),v(s,` ${l(t).error?.message??(l(t).status===`skipped`?`is skipped`:`cannot be predicted`)??``}`)}),f(e,n)}),g(t),c((e,t)=>{v(i,`Dry run: ${e??``}`),v(s,`${t??``}${l(z)?``:`, of an earlier text`}`)},[()=>l(rt)===0?`nothing would change`:`${x(l(rt),`file`)} would change`,()=>de(l(P).at)]),f(e,t)};d(kt,e=>{l(P)&&e(At)}),g(Ct),g(X);var jt=a(X,2),Q=b(jt),Mt=b(Q),Nt=e=>{var n=ze(),r=a(t(n)),i=p(r,!0);h(),c(e=>v(i,e),[()=>_e(l(P).report.previewHash)]),f(e,n)},Pt=e=>{var n=Be(),r=a(t(n)),i=p(r,!0);h(),c(()=>v(i,l(I))),f(e,n)},Ft=e=>{var t=ie(`A dry run shows what would change. Only what was shown can be run.`);f(e,t)};d(Mt,e=>{l(P)&&l(z)&&!(D&&l(I))?e(Nt):D&&l(I)?e(Pt,1):e(Ft,-1)}),g(Q);var $=a(Q),It=b($);S(It,{name:`i-play`});var Lt=a(It,1,!0);g($),g(jt),c((e,t)=>{v(ht,`${e??``}${l(L)?.riskLevel?`, ${l(L).riskLevel}`:``}`),J.disabled=!C.live,v(vt,C.live?`Check`:`Check: offline`),Y.disabled=!C.live||l(F)!==``||!l(L)||!C.mayAct,v(yt,C.mayAct?`Dry run`:`Dry run: look only`),$.disabled=t,v(Lt,C.live?C.mayAct?l(z)?D&&l(I)?`Fork from ${l(I)}`:l(nt):`Run: dry run first`:`Run: look only`:`Run: offline`)},[()=>x(l(R).length,`step`),()=>!l(z)||l(F)!==``||!C.live||!C.mayAct||!!l(P)?.report.error]),_(`change`,K,e=>{let t=E.find(t=>t.name===e.currentTarget.value);t&&qe(t.name,t.text),e.currentTarget.value=``}),_(`click`,J,()=>void Ye()),_(`click`,Y,()=>void Xe()),_(`click`,$,()=>void Ze()),f(e,it),o()}e([`change`,`click`]);export{E as default};