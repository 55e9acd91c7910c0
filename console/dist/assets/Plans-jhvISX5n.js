import{A as e,B as t,C as n,E as r,G as i,H as a,I as o,J as s,L as c,M as l,O as u,P as d,R as f,U as p,V as m,W as h,X as g,Y as _,d as ee,k as te,n as ne,q as re,s as ie,u as ae,v,w as y,x as b,y as oe,z as x}from"./disclose-version-B0leeuqv.js";import{t as se}from"./diff-Dip28SSn.js";import{b as S,f as C,r as ce,s as le,t as ue,y as de}from"./index-BepQkbJC.js";import{n as fe}from"./form-CD4_41mu.js";import{n as pe,t as me}from"./Dag-5dGI6e_Q.js";import{n as he,r as w,t as T}from"./Icon-BCWGvg3M.js";import{n as ge}from"./record-BrJb39yM.js";import{n as _e,r as ve,t as ye}from"./Name-Cd-szSw7.js";import{t as be}from"./DiffView-DgiNOLLP.js";var xe=`{
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
`,De=r(`/ fork of <a class="mono"> </a>`,1),Oe=r(`<span class="st bad chip"><!>Not JSON</span>`),ke=r(`<span class="st bad chip"><!> </span>`),Ae=r(`<span class="st warn chip"><!> </span>`),je=r(`<span class="st ok chip"><!>No errors</span>`),Me=r(`<option> </option>`),Ne=r(`<div class="mb2"><!></div>`),Pe=r(`<div class="panel"><header><h2>Order</h2><span class="small dim">solid: waits for, stitched: uses</span></header><div class="in"><!></div></div>`),Fe=r(`<div class="field"><label for="fork-from">Run again from</label><select class="input mono" id="fork-from"><option>the beginning, as a new run</option><!></select><span class="hint">Results of the steps before it are taken over from the run.</span></div>`),Ie=r(`<div class="problem"><!><div><p class="wrap"><!></p><p class="code-name wrap"> </p></div></div>`),Le=r(`<p class="small dim mt"><!> <b> </b> </p>`),Re=r(`<div><div class="line mb"><h2 class="grow"> </h2><span class="small dim"> </span></div> <!> <!></div>`),ze=r(`The run is bound to preview <span class="mono"> </span>. If a note changes before, it is refused.`,1),Be=r(`A new run from <b> </b> on.`,1),Ve=r(`<div class="head"><div><p class="crumb"><a href="/plans">Plans</a><!></p><h1 class="wrap"><!></h1> <p class="sub line flow"><!><span> </span></p></div> <div class="acts svelte-1559dfm"><label class="vh" for="ex">Start from an example</label><select class="input svelte-1559dfm" id="ex"><option>Examples</option><!></select><button class="btn" type="button"> </button><button class="btn" type="button"> </button></div></div> <!> <div class="plan-grid"><section class="plan-ed" aria-label="Editor"><div class="editor host svelte-1559dfm"></div><p class="small dim mt keys"><span><kbd>Ctrl</kbd><kbd>Space</kbd> what fits here</span><span><kbd>Ctrl</kbd><kbd>Enter</kbd> dry run</span><span><kbd>F8</kbd> next finding</span></p></section> <section class="plan-side stack svelte-1559dfm" aria-label="What it would do"><!> <!> <!> <!></section></div> <div class="decide"><div class="grow small dim"><!></div><button class="btn primary" type="button"><!> </button></div>`,1);function E(r,te){s(te,!0);let E=Object.entries(Object.assign({"../../../examples/plans/append-selection.json":xe,"../../../examples/plans/fails-check.json":Se,"../../../examples/plans/notes-from-bullets.json":Ce,"../../../examples/plans/patch-front-matter.json":we,"../../../examples/plans/read-summary.json":Te,"../../../examples/plans/rename-with-links.json":Ee})).map(([e,t])=>({name:e.slice(e.lastIndexOf(`/`)+1),text:t})),D=de.route.query.get(`from`)??``,O=h(void 0),k=null,A=h(`{
  "version": "1.0",
  "goal": "",
  "riskLevel": "read-only",
  "steps": [
    { "id": "first", "tool": "", "args": {} }
  ]
}
`),j=h(a(D?``:`New plan`)),He=[],M=h(null),N=h(null),P=h(null),F=h(``),I=h(``),Ue,L=i(()=>{try{return JSON.parse(l(A))}catch{return null}}),R=i(()=>l(L)?.steps?.filter(e=>e&&typeof e.id==`string`)??[]),z=i(()=>l(P)!==null&&l(P).text===l(A)),B=i(()=>l(N)?.text===l(A)?l(N).report:null),We=i(()=>l(P)?se(l(P).report.diff):[]);c(()=>{document.title=`${l(j)||`Plan`} · Toolyard`}),c(()=>{let e=l(O);if(!e)return;let t=null,n=!1;return d(async()=>{let{PlanEditor:r}=await ue(async()=>{let{PlanEditor:e}=await import(`./editor-DOCR6Lnj.js`);return{PlanEditor:e}},[]);n||(t=k=new r(e,l(A),()=>He,Je,()=>void Xe()))}),()=>{n=!0,t?.destroy(),k=null}}),c(()=>{S.live&&d(()=>void Ke())});let Ge=!1;async function Ke(){if(!Ge){Ge=!0;try{if(He=(await S.call(`tools.list`,{schemas:!0})).tools.map(e=>({name:e.name,description:e.description,args:fe(e.inputSchema).map(e=>({name:e.name,required:e.required,hint:e.hint}))})),D){let e=(await S.call(`runs.record`,{runId:D,from:1,limit:1})).frames[0],t=e?ge(e.payload):null;if(!t?.plan)throw new he({code:`PRECONDITION_FAILED`,message:`This run has no plan.`,suggestion:`Only runs of plans can be forked.`});qe(t.plan.goal??ve(D),JSON.stringify(t.plan,null,2)+`
`)}}catch(e){p(M,w(e))}}}function qe(e,t){p(j,e,!0),p(A,t,!0),p(P,null),k?.set(t),Je(t)}function Je(e){p(A,e,!0),clearTimeout(Ue),Ue=setTimeout(()=>void Ye(),500)}async function Ye(){if(!S.live||!l(L)||l(R).every(e=>!e.tool))return;let e=l(A);try{let t=await S.call(`plans.check`,{plan:l(L)});if(e!==l(A))return;p(N,{text:e,report:t});let n=[...t.errors.map(e=>({path:e.path,message:e.message,error:!0})),...t.warnings.map(e=>({path:e.path,message:e.message,error:!1}))];k?.issues(n),p(M,null)}catch(t){e===l(A)&&p(M,w(t))}}async function Xe(){if(!S.live||!l(L)||!S.mayAct)return;let e=l(A);p(F,`dry`),p(M,null);try{let t=await S.call(`plans.dryRun`,{plan:l(L)});p(P,{text:e,report:t,at:Date.now()}),t.error&&p(M,new he({code:t.error.code,message:t.error.message,suggestion:t.error.suggestion??void 0}))}catch(e){p(M,w(e))}finally{p(F,``)}}async function Ze(){if(!l(P)||!l(z)||!l(L))return;p(F,`run`),p(M,null);let{planHash:e,policyHash:t,previewHash:n}=l(P).report,r={approved:!0,planHash:e,policyHash:t,previewHash:n};try{let e=D&&l(I)?await S.call(`plans.fork`,{runId:D,from:l(I),plan:l(L),consent:{approved:!0}}):await S.call(`plans.run`,{plan:l(L),consent:r,detach:!0});de.go(`/runs/${e.runId}`)}catch(e){p(M,w(e))}finally{p(F,``)}}let Qe=i(()=>new Set(l(R).map(e=>e.id))),$e=i(()=>l(R).map(e=>({id:e.id,title:e.id,detail:e.tool??``,loop:!!e.foreach,state:tt(e)}))),et=i(()=>l(R).flatMap(e=>{let t=new Set(Array.isArray(e.dependsOn)?e.dependsOn:[]),n=pe([e.args,e.foreach],l(Qe));return[...[...t].map(t=>({from:t,to:e.id,reference:!1})),...[...n].filter(e=>!t.has(e)).map(t=>({from:t,to:e.id,reference:!0}))]}));function tt(e){let t=l(z)?l(P)?.report.steps.find(t=>t.id===e.id):void 0;return t?t.status===`ok`?`ok`:t.status===`skipped`?`skip`:t.status?`fail`:`wait`:l(B)?.errors.some(t=>t.step===e.id)?`fail`:l(B)?.warnings.some(t=>t.step===e.id)?`warned`:l(B)?`ok`:`wait`}let V=i(()=>l(P)?.report.effects),nt=i(()=>{let e=[],t=(t,n)=>{t&&e.push(`${n} ${t}`)};return t(l(V)?.created?.length,`create`),t(l(V)?.modified?.length,`change`),t(l(V)?.renamed?.length,`rename`),t(l(V)?.deleted?.length,`delete`),e.length?`Run, ${e.join(`, `)}`:`Run`}),rt=i(()=>(l(V)?.created?.length??0)+(l(V)?.modified?.length??0)+(l(V)?.renamed?.length??0)+(l(V)?.deleted?.length??0));var it=Ve(),H=x(it),U=f(H),W=f(U),at=m(f(W)),ot=e=>{var r=De(),i=m(x(r)),a=t(i,!0);o(e=>{ie(i,`href`,`/runs/${D}`),n(a,e)},[()=>ve(D)]),y(e,r)};b(at,e=>{D&&e(ot)}),g(W);var G=m(W),st=f(G);ye(st,{get text(){return l(j)}}),g(G);var ct=m(G,2),lt=f(ct),ut=e=>{var t=Oe(),n=f(t);T(n,{name:`st-bad`,kind:``}),_(),g(t),y(e,t)},dt=e=>{var t=ke(),r=f(t);T(r,{name:`st-bad`,kind:``});var i=m(r,1,!0);g(t),o(e=>n(i,e),[()=>C(l(B).errors.length,`error`)]),y(e,t)},ft=e=>{var t=Ae(),r=f(t);T(r,{name:`st-warn`,kind:``});var i=m(r,1,!0);g(t),o(e=>n(i,e),[()=>C(l(B).warnings.length,`warning`)]),y(e,t)},pt=e=>{var t=je(),n=f(t);T(n,{name:`st-ok`,kind:``}),_(),g(t),y(e,t)};b(lt,e=>{l(L)?l(B)&&l(B).errors.length>0?e(dt,1):l(B)&&l(B).warnings.length>0?e(ft,2):l(B)&&e(pt,3):e(ut)});var mt=m(lt),ht=t(mt);g(ct),g(U);var gt=m(U,2),K=m(f(gt)),q=f(K);q.value=q.__value=``;var _t=m(q);v(_t,17,()=>E,e=>e.name,(e,r)=>{var i=Me(),a=t(i,!0),s={};o(()=>{n(a,l(r).name),s!==(s=l(r).name)&&(i.value=(i.__value=s)??``)}),y(e,i)}),g(K);var J=m(K),vt=t(J,!0),Y=m(J),yt=t(Y,!0);g(gt),g(H);var bt=m(H,2),xt=e=>{var t=Ne(),n=f(t);ce(n,{get problem(){return l(M)}}),g(t),y(e,t)};b(bt,e=>{l(M)&&e(xt)});var X=m(bt,2),Z=f(X),St=f(Z);ne(St,e=>p(O,e),()=>l(O)),_(),g(Z);var Ct=m(Z,2),wt=f(Ct),Tt=e=>{var t=Pe(),n=m(f(t)),r=f(n);me(r,{get nodes(){return l($e)},get edges(){return l(et)},get selected(){return l(I)},select:e=>p(I,e,!0)}),g(n),g(t),y(e,t)};b(wt,e=>{l($e).length>0&&e(Tt)});var Et=m(wt,2),Dt=e=>{var r=Fe(),i=m(f(r)),a=f(i);a.value=a.__value=``;var s=m(a);v(s,17,()=>l(R),e=>e.id,(e,r)=>{var i=Me(),a=t(i,!0),s={};o(()=>{n(a,l(r).id),s!==(s=l(r).id)&&(i.value=(i.__value=s)??``)}),y(e,i)}),g(i),ee(i),_(),g(r),ae(i,()=>l(I),e=>p(I,e)),y(e,r)};b(Et,e=>{D&&l(R).length>0&&e(Dt)});var Ot=m(Et,2);v(Ot,17,()=>[...l(B)?.errors??[],...l(B)?.warnings??[]].slice(0,12),oe,(e,r,a)=>{var s=Ie(),c=f(s);{let e=i(()=>a<(l(B)?.errors.length??0)?`st-bad`:`st-warn`);T(c,{get name(){return l(e)},kind:``})}var u=m(c),d=f(u),p=f(d);ye(p,{get text(){return l(r).message}}),g(d);var h=m(d),_=t(h);g(u),g(s),o(()=>n(_,`${l(r).type??``} ${l(r).path??``}`)),y(e,s)});var kt=m(Ot,2),At=e=>{var r=Re(),i=f(r),a=f(i),s=t(a),c=m(a),u=t(c);g(i);var d=m(i,2);v(d,17,()=>l(We),oe,(e,t,n)=>{be(e,{get file(){return l(t)},open:n<2})});var p=m(d,2);v(p,17,()=>l(P).report.steps.filter(e=>e.status!==`ok`),e=>e.id,(e,r)=>{var i=Le(),a=f(i);T(a,{name:`st-skip`,kind:`inl`});var s=m(a,2),c=t(s,!0),u=m(s);g(i),o(()=>{n(c,l(r).id),n(u,` ${l(r).error?.message??(l(r).status===`skipped`?`is skipped`:`cannot be predicted`)??``}`)}),y(e,i)}),g(r),o((e,t)=>{n(s,`Dry run: ${e??``}`),n(u,`${t??``}${l(z)?``:`, of an earlier text`}`)},[()=>l(rt)===0?`nothing would change`:`${C(l(rt),`file`)} would change`,()=>le(l(P).at)]),y(e,r)};b(kt,e=>{l(P)&&e(At)}),g(Ct),g(X);var jt=m(X,2),Q=f(jt),Mt=f(Q),Nt=e=>{var r=ze(),i=m(x(r)),a=t(i,!0);_(),o(e=>n(a,e),[()=>_e(l(P).report.previewHash)]),y(e,r)},Pt=e=>{var r=Be(),i=m(x(r)),a=t(i,!0);_(),o(()=>n(a,l(I))),y(e,r)},Ft=e=>{var t=u(`A dry run shows what would change. Only what was shown can be run.`);y(e,t)};b(Mt,e=>{l(P)&&l(z)&&!(D&&l(I))?e(Nt):D&&l(I)?e(Pt,1):e(Ft,-1)}),g(Q);var $=m(Q),It=f($);T(It,{name:`i-play`});var Lt=m(It,1,!0);g($),g(jt),o((e,t)=>{n(ht,`${e??``}${l(L)?.riskLevel?`, ${l(L).riskLevel}`:``}`),J.disabled=!S.live,n(vt,S.live?`Check`:`Check: offline`),Y.disabled=!S.live||l(F)!==``||!l(L)||!S.mayAct,n(yt,S.mayAct?`Dry run`:`Dry run: look only`),$.disabled=t,n(Lt,S.live?S.mayAct?l(z)?D&&l(I)?`Fork from ${l(I)}`:l(nt):`Run: dry run first`:`Run: look only`:`Run: offline`)},[()=>C(l(R).length,`step`),()=>!l(z)||l(F)!==``||!S.live||!S.mayAct||!!l(P)?.report.error]),e(`change`,K,e=>{let t=E.find(t=>t.name===e.currentTarget.value);t&&qe(t.name,t.text),e.currentTarget.value=``}),e(`click`,J,()=>void Ye()),e(`click`,Y,()=>void Xe()),e(`click`,$,()=>void Ze()),y(r,it),re()}te([`change`,`click`]);export{E as default};