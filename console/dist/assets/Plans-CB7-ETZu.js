import"./disclose-version-xihTtKlq.js";import{A as e,B as t,D as n,F as r,G as i,H as a,L as o,N as s,Q as c,R as l,S as u,T as d,U as f,V as p,W as m,X as ee,Y as te,Z as h,b as ne,d as re,j as g,k as ie,n as ae,q as _,s as oe,u as se,w as v,y,z as b}from"./index-client-BC68D0oa.js";import{t as ce}from"./diff-Dip28SSn.js";import{S as x,_ as S,f as C,r as le,s as ue,t as de,x as fe}from"./index-B579OtaN.js";import{n as pe}from"./form-CD4_41mu.js";import{n as me,t as he}from"./Dag-DNSkc4Ss.js";import{i as ge,n as w,t as T}from"./problem-XW2ypk9x.js";import{n as _e}from"./record-DZ-4qOxg.js";import{i as ve,r as ye}from"./text-B4I0s8cc.js";import{t as be}from"./DiffView-CCJGOF88.js";import{t as xe}from"./Name-Dyfmo_Dy.js";var Se=`{
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
`,Ce=`{
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
`,we=`{
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
`,Te=`{
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
`,Ee=`{
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
`,De=`{
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
`,Oe=n(`/ fork of <a class="mono"> </a>`,1),ke=n(`<span class="st bad chip"><!>Not JSON</span>`),Ae=n(`<span class="st bad chip"><!> </span>`),je=n(`<span class="st warn chip"><!> </span>`),Me=n(`<span class="st ok chip"><!>No errors</span>`),Ne=n(`<option> </option>`),Pe=n(`<div class="mb2"><!></div>`),Fe=n(`<div class="panel"><header><h2>Order</h2><span class="small dim">solid: waits for, stitched: uses</span></header><div class="in"><!></div></div>`),Ie=n(`<div class="field"><label for="fork-from">Run again from</label><select class="input mono" id="fork-from"><option>the beginning, as a new run</option><!></select><span class="hint">Results of the steps before it are taken over from the run.</span></div>`),Le=n(`<div class="problem"><!><div><p class="wrap"><!></p><p class="code-name wrap"> </p></div></div>`),Re=n(`<p class="small dim mt"><!> <b> </b> </p>`),ze=n(`<div><div class="line mb"><h2 class="grow"> </h2><span class="small dim"> </span></div> <!> <!></div>`),Be=n(`The run is bound to preview <span class="mono"> </span>. If a note changes before, it is refused.`,1),Ve=n(`A new run from <b> </b> on.`,1),He=n(`<div class="head"><div><p class="crumb"><a href="/plans">Plans</a><!></p><h1 class="wrap"><!></h1> <p class="sub line flow"><!><span> </span></p></div> <div class="acts svelte-1559dfm"><label class="vh" for="ex">Start from an example</label><select class="input svelte-1559dfm" id="ex"><option>Examples</option><!></select><button class="btn" type="button"> </button><button class="btn" type="button"> </button></div></div> <!> <div class="plan-grid"><section class="plan-ed" aria-label="Editor"><div class="editor host svelte-1559dfm"></div><p class="small dim mt keys"><span><kbd>Ctrl</kbd><kbd>Space</kbd> what fits here</span><span><kbd>Ctrl</kbd><kbd>Enter</kbd> dry run</span><span><kbd>F8</kbd> next finding</span></p></section> <section class="plan-side stack svelte-1559dfm" aria-label="What it would do"><!> <!> <!> <!></section></div> <div class="decide"><div class="grow small dim"><!></div><button class="btn primary" type="button"><!> </button></div>`,1);function E(e,n){ee(n,!0);let E=Object.entries(Object.assign({"../../../examples/plans/append-selection.json":Se,"../../../examples/plans/fails-check.json":Ce,"../../../examples/plans/notes-from-bullets.json":we,"../../../examples/plans/patch-front-matter.json":Te,"../../../examples/plans/read-summary.json":Ee,"../../../examples/plans/rename-with-links.json":De})).map(([e,t])=>({name:e.slice(e.lastIndexOf(`/`)+1),text:t})),D=fe.route.query.get(`from`)??``,O=i(void 0),k=null,A=i(`{
  "version": "1.0",
  "goal": "",
  "riskLevel": "read-only",
  "steps": [
    { "id": "first", "tool": "", "args": {} }
  ]
}
`),j=i(f(D?``:`New plan`)),Ue=[],M=i(null),N=i(null),P=i(null),F=i(``),I=i(``),We,L=_(()=>{try{return JSON.parse(s(A))}catch{return null}}),R=_(()=>s(L)?.steps?.filter(e=>e&&typeof e.id==`string`)??[]),z=_(()=>s(P)!==null&&s(P).text===s(A)),B=_(()=>s(N)?.text===s(A)?s(N).report:null),Ge=_(()=>s(P)?ce(s(P).report.diff):[]);l(()=>{document.title=`${s(j)||`Plan`} · Toolyard`}),l(()=>{let e=s(O);if(!e)return;let t=null,n=!1;return r(async()=>{let{PlanEditor:r}=await de(async()=>{let{PlanEditor:e}=await import(`./editor-DOCR6Lnj.js`);return{PlanEditor:e}},[]);n||(t=k=new r(e,s(A),()=>Ue,Ye,()=>void Ze()))}),()=>{n=!0,t?.destroy(),k=null}}),l(()=>{x.live&&r(()=>void qe())});let Ke=!1;async function qe(){if(!Ke){Ke=!0;try{if(Ue=(await x.call(`tools.list`,{schemas:!0})).tools.map(e=>({name:e.name,description:e.description,args:pe(e.inputSchema).map(e=>({name:e.name,required:e.required,hint:e.hint}))})),D){let e=(await x.call(`runs.record`,{runId:D,from:1,limit:1})).frames[0],t=e?_e(e.payload):null;if(!t?.plan)throw new T({code:`PRECONDITION_FAILED`,message:`This run has no plan.`,suggestion:`Only runs of plans can be forked.`});Je(t.plan.goal??ve(D),JSON.stringify(t.plan,null,2)+`
`)}}catch(e){m(M,ge(e))}}}function Je(e,t){m(j,e,!0),m(A,t,!0),m(P,null),k?.set(t),Ye(t)}function Ye(e){m(A,e,!0),clearTimeout(We),We=setTimeout(()=>void Xe(),500)}async function Xe(){if(!x.live||!s(L)||s(R).every(e=>!e.tool))return;let e=s(A);try{let t=await x.call(`plans.check`,{plan:s(L)});if(e!==s(A))return;m(N,{text:e,report:t});let n=[...t.errors.map(e=>({path:e.path,message:e.message,error:!0})),...t.warnings.map(e=>({path:e.path,message:e.message,error:!1}))];k?.issues(n),m(M,null)}catch(t){e===s(A)&&m(M,w(t))}}async function Ze(){if(!x.live||!s(L)||!x.mayAct)return;let e=s(A);m(F,`dry`),m(M,null);try{let t=await x.call(`plans.dryRun`,{plan:s(L)});m(P,{text:e,report:t,at:Date.now()}),t.error&&m(M,new T({code:t.error.code,message:t.error.message,suggestion:t.error.suggestion??void 0}))}catch(e){m(M,w(e))}finally{m(F,``)}}async function Qe(){if(!s(P)||!s(z)||!s(L))return;m(F,`run`),m(M,null);let{planHash:e,policyHash:t,previewHash:n}=s(P).report,r={approved:!0,planHash:e,policyHash:t,previewHash:n};try{let e=D&&s(I)?await x.call(`plans.fork`,{runId:D,from:s(I),plan:s(L),consent:{approved:!0}}):await x.call(`plans.run`,{plan:s(L),consent:r,detach:!0});fe.go(`/runs/${e.runId}`)}catch(e){m(M,w(e)),s(M).code===`CONFIRMATION_REQUIRED`&&m(M,new T({code:s(M).code,message:`What would change is not what the dry run showed: something was changed meanwhile. Nothing ran.`,suggestion:`Make the dry run again, look at it, and run that.`}))}finally{m(F,``)}}let $e=_(()=>new Set(s(R).map(e=>e.id))),et=_(()=>s(R).map(e=>({id:e.id,title:e.id,detail:e.tool??``,loop:!!e.foreach,state:nt(e)}))),tt=_(()=>s(R).flatMap(e=>{let t=new Set(Array.isArray(e.dependsOn)?e.dependsOn:[]),n=me([e.args,e.foreach],s($e));return[...[...t].map(t=>({from:t,to:e.id,reference:!1})),...[...n].filter(e=>!t.has(e)).map(t=>({from:t,to:e.id,reference:!0}))]}));function nt(e){let t=s(z)?s(P)?.report.steps.find(t=>t.id===e.id):void 0;return t?t.status===`ok`?`ok`:t.status===`skipped`?`skip`:t.status?`fail`:`wait`:s(B)?.errors.some(t=>t.step===e.id)?`fail`:s(B)?.warnings.some(t=>t.step===e.id)?`warned`:s(B)?`ok`:`wait`}let V=_(()=>s(P)?.report.effects),rt=_(()=>{let e=[],t=(t,n)=>{t&&e.push(`${n} ${t}`)};return t(s(V)?.created?.length,`create`),t(s(V)?.modified?.length,`change`),t(s(V)?.renamed?.length,`rename`),t(s(V)?.deleted?.length,`delete`),e.length?`Run, ${e.join(`, `)}`:`Run`}),it=_(()=>(s(V)?.created?.length??0)+(s(V)?.modified?.length??0)+(s(V)?.renamed?.length??0)+(s(V)?.deleted?.length??0));var at=He(),H=t(at),U=b(H),W=b(U),ot=a(b(W)),st=e=>{var n=Oe(),r=a(t(n)),i=p(r,!0);o(e=>{oe(r,`href`,`/runs/${D}`),v(i,e)},[()=>ve(D)]),d(e,n)};u(ot,e=>{D&&e(st)}),c(W);var G=a(W),ct=b(G);{let e=_(()=>s(j)||`Fork of a run`);xe(ct,{get text(){return s(e)}})}c(G);var lt=a(G,2),ut=b(lt),dt=e=>{var t=ke(),n=b(t);S(n,{name:`st-bad`,kind:``}),h(),c(t),d(e,t)},ft=e=>{var t=Ae(),n=b(t);S(n,{name:`st-bad`,kind:``});var r=a(n,1,!0);c(t),o(e=>v(r,e),[()=>C(s(B).errors.length,`error`)]),d(e,t)},pt=e=>{var t=je(),n=b(t);S(n,{name:`st-warn`,kind:``});var r=a(n,1,!0);c(t),o(e=>v(r,e),[()=>C(s(B).warnings.length,`warning`)]),d(e,t)},mt=e=>{var t=Me(),n=b(t);S(n,{name:`st-ok`,kind:``}),h(),c(t),d(e,t)};u(ut,e=>{s(L)?s(B)&&s(B).errors.length>0?e(ft,1):s(B)&&s(B).warnings.length>0?e(pt,2):s(B)&&e(mt,3):e(dt)});var ht=a(ut),gt=p(ht);c(lt),c(U);var _t=a(U,2),K=a(b(_t)),q=b(K);q.value=q.__value=``;var vt=a(q);y(vt,17,()=>E,e=>e.name,(e,t)=>{var n=Ne(),r=p(n,!0),i={};o(()=>{v(r,s(t).name),i!==(i=s(t).name)&&(n.value=(n.__value=i)??``)}),d(e,n)}),c(K);var J=a(K),yt=p(J,!0),Y=a(J),bt=p(Y,!0);c(_t),c(H);var xt=a(H,2),St=e=>{var t=Pe(),n=b(t);le(n,{get problem(){return s(M)}}),c(t),d(e,t)};u(xt,e=>{s(M)&&e(St)});var X=a(xt,2),Z=b(X),Ct=b(Z);ae(Ct,e=>m(O,e),()=>s(O)),h(),c(Z);var wt=a(Z,2),Tt=b(wt),Et=e=>{var t=Fe(),n=a(b(t)),r=b(n);he(r,{get nodes(){return s(et)},get edges(){return s(tt)},get selected(){return s(I)},select:e=>m(I,e,!0)}),c(n),c(t),d(e,t)};u(Tt,e=>{s(et).length>0&&e(Et)});var Dt=a(Tt,2),Ot=e=>{var t=Ie(),n=a(b(t)),r=b(n);r.value=r.__value=``;var i=a(r);y(i,17,()=>s(R),e=>e.id,(e,t)=>{var n=Ne(),r=p(n,!0),i={};o(()=>{v(r,s(t).id),i!==(i=s(t).id)&&(n.value=(n.__value=i)??``)}),d(e,n)}),c(n),re(n),h(),c(t),se(n,()=>s(I),e=>m(I,e)),d(e,t)};u(Dt,e=>{D&&s(R).length>0&&e(Ot)});var kt=a(Dt,2);y(kt,17,()=>[...s(B)?.errors??[],...s(B)?.warnings??[]].slice(0,12),ne,(e,t,n)=>{var r=Le(),i=b(r);{let e=_(()=>n<(s(B)?.errors.length??0)?`st-bad`:`st-warn`);S(i,{get name(){return s(e)},kind:``})}var l=a(i),u=b(l),f=b(u);xe(f,{get text(){return s(t).message}}),c(u);var m=a(u),ee=p(m);c(l),c(r),o(()=>v(ee,`${s(t).type??``} ${s(t).path??``}`)),d(e,r)});var At=a(kt,2),jt=e=>{var t=ze(),n=b(t),r=b(n),i=p(r),l=a(r),u=p(l);c(n);var f=a(n,2);y(f,17,()=>s(Ge),ne,(e,t,n)=>{be(e,{get file(){return s(t)},open:n<2})});var m=a(f,2);y(m,17,()=>s(P).report.steps.filter(e=>e.status!==`ok`),e=>e.id,(e,t)=>{var n=Re(),r=b(n);S(r,{name:`st-skip`,kind:`inl`});var i=a(r,2),l=p(i,!0),u=a(i);c(n),o(()=>{v(l,s(t).id),v(u,` ${s(t).error?.message??(s(t).status===`skipped`?`is skipped`:`cannot be predicted`)??``}`)}),d(e,n)}),c(t),o((e,t)=>{v(i,`Dry run: ${e??``}`),v(u,`${t??``}${s(z)?``:`, of an earlier text`}`)},[()=>s(it)===0?`nothing would change`:`${C(s(it),`file`)} would change`,()=>ue(s(P).at)]),d(e,t)};u(At,e=>{s(P)&&e(jt)}),c(wt),c(X);var Mt=a(X,2),Q=b(Mt),Nt=b(Q),Pt=e=>{var n=Be(),r=a(t(n)),i=p(r,!0);h(),o(e=>v(i,e),[()=>ye(s(P).report.previewHash)]),d(e,n)},Ft=e=>{var n=Ve(),r=a(t(n)),i=p(r,!0);h(),o(()=>v(i,s(I))),d(e,n)},It=e=>{var t=ie(`A dry run shows what would change. Only what was shown can be run.`);d(e,t)};u(Nt,e=>{s(P)&&s(z)&&!(D&&s(I))?e(Pt):D&&s(I)?e(Ft,1):e(It,-1)}),c(Q);var $=a(Q),Lt=b($);S(Lt,{name:`i-play`});var Rt=a(Lt,1,!0);c($),c(Mt),o((e,t)=>{v(gt,`${e??``}${s(L)?.riskLevel?`, ${s(L).riskLevel}`:``}`),J.disabled=!x.live,v(yt,x.live?`Check`:`Check: offline`),Y.disabled=!x.live||s(F)!==``||!s(L)||!x.mayAct,v(bt,x.mayAct?`Dry run`:`Dry run: look only`),$.disabled=t,v(Rt,x.live?x.mayAct?s(z)?D&&s(I)?`Fork from ${s(I)}`:s(rt):`Run: dry run first`:`Run: look only`:`Run: offline`)},[()=>C(s(R).length,`step`),()=>!s(z)||s(F)!==``||!x.live||!x.mayAct||!!s(P)?.report.error]),g(`change`,K,e=>{let t=E.find(t=>t.name===e.currentTarget.value);t&&Je(t.name,t.text),e.currentTarget.value=``}),g(`click`,J,()=>void Xe()),g(`click`,Y,()=>void Ze()),g(`click`,$,()=>void Qe()),d(e,at),te()}e([`change`,`click`]);export{E as default};