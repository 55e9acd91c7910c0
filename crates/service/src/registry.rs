//! [`Methods`]: the list of methods with their handlers. A door answers no method that is not in the list.

use crate::{
    Call, Handle, Hub, Lane, Method, MethodError, Object, Role, RpcError, Service, Terms, hub::Connection, list,
    method::ClientRequest, params, service::blocking, sessions::Key, stored,
};
use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use std::{
    collections::HashMap,
    marker::PhantomData,
    sync::{Arc, OnceLock},
};
use toolyard_engine::{
    BoxFuture, Caller,
    authority::{self, Power, Refusal},
};
use toolyard_protocol::{ErrorCode, Failure, RunId};

/// How many characters of a caller's method name are repeated in an error.
const MAX_SHOWN: usize = 80;

/// A method as the list has it.
#[derive(Clone)]
pub struct Entry {
    /// Its name on the wire.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// On which terms it may be called.
    pub terms: Terms,
    types: Option<TypeSchemas>,
    handler: Option<Arc<dyn Answers>>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).field("terms", &self.terms).finish_non_exhaustive()
    }
}

impl Entry {
    fn declare<M: Method>() -> Self {
        Self {
            name: M::NAME,
            about: M::ABOUT.trim_ascii(),
            terms: M::TERMS,
            // The linker then finds no use for the code that makes schemas in a released program.
            types: if stored::FROM_TYPES { Some(TypeSchemas::of::<M>()) } else { None },
            handler: None,
        }
    }

    /// The schemas of its types; a released program has [`stored::methods`] instead.
    pub fn types(&self) -> Option<&TypeSchemas> {
        self.types.as_ref()
    }

    /// The scope it needs, if any.
    pub fn scope(&self) -> Option<&'static str> {
        self.terms.demand.scope.map(authority::Scope::as_str)
    }
}

/// Makes the JSON Schemas of a method from its types.
#[derive(Debug, Clone, Copy)]
pub struct TypeSchemas {
    params: fn() -> Value,
    answer: fn() -> Value,
    shared: fn(&mut SharedSchemas) -> MethodSchemas,
    checker: fn() -> params::Checker,
}

impl TypeSchemas {
    fn of<M: Method>() -> Self {
        Self {
            params: params::schema_of::<M::Params>,
            answer: || {
                let settings = SchemaSettings::draft2020_12().for_serialize();
                settings.into_generator().into_root_schema_for::<M::Answer>().to_value()
            },
            shared: |all| MethodSchemas {
                params: all.params.subschema_for::<M::Params>(),
                answer: all.answers.subschema_for::<M::Answer>(),
            },
            checker: params::Checker::of::<M::Params>,
        }
    }

    /// The JSON Schema of the parameters.
    pub fn params(&self) -> Value {
        (self.params)()
    }

    /// The JSON Schema of the answer.
    pub fn answer(&self) -> Value {
        (self.answer)()
    }

    /// The schemas of parameters and answer, with their definitions among those of all methods.
    pub fn shared(&self, all: &mut SharedSchemas) -> MethodSchemas {
        (self.shared)(all)
    }

    /// What checks the parameters.
    pub fn checker(&self) -> params::Checker {
        (self.checker)()
    }
}

/// The schemas of one method.
#[derive(Debug, Serialize)]
pub struct MethodSchemas {
    params: Schema,
    answer: Schema,
}

/// The definitions that the schemas of several methods refer to. Definitions for reading and for writing are separate:
/// a field can be optional in parameters and present in every answer.
#[derive(Debug)]
pub struct SharedSchemas {
    params: SchemaGenerator,
    answers: SchemaGenerator,
}

impl Default for SharedSchemas {
    fn default() -> Self {
        let generator = |settings: SchemaSettings, path: &'static str| {
            settings.with(|settings| settings.definitions_path = path.into()).into_generator()
        };
        Self {
            params: generator(SchemaSettings::draft2020_12().for_deserialize(), "/$defs/params"),
            answers: generator(SchemaSettings::draft2020_12().for_serialize(), "/$defs/answers"),
        }
    }
}

impl SharedSchemas {
    /// The definitions of parameters and of answers.
    pub fn into_definitions(mut self) -> Definitions {
        Definitions { params: self.params.take_definitions(true), answers: self.answers.take_definitions(true) }
    }
}

/// Definitions by their names.
#[derive(Debug, Serialize)]
pub struct Definitions {
    params: Object,
    answers: Object,
}

/// The list of all methods.
#[derive(Clone, Debug, Default)]
pub struct Methods {
    entries: Vec<Entry>,
    places: HashMap<&'static str, usize>,
}

impl Methods {
    /// Every method that the application itself answers.
    pub fn built_in() -> Self {
        list::built_in()
    }

    /// Declares a method that the application itself answers.
    pub(crate) fn by_service<M: Method>(mut self) -> Self
    where
        Service: Handle<M>,
    {
        self.put(Entry { handler: Some(Arc::new(ByService::<M>::default())), ..Entry::declare::<M>() });
        self
    }

    /// Declares a method that works on the [`Hub`].
    pub(crate) fn by_hub<M: Method>(mut self) -> Self
    where
        Hub: Handle<M>,
    {
        self.put(Entry { handler: Some(Arc::new(ByHub::<M>::default())), ..Entry::declare::<M>() });
        self
    }

    /// Declares a method that another part of the program handles. Without a handler it is listed and cannot be called.
    pub fn add<M: Method, H: Handle<M> + Clone>(&mut self, handler: Option<&H>) {
        let handler = handler.map(|handler| Arc::new(ByHandler::<M, H>::new(handler.clone())) as Arc<dyn Answers>);
        self.put(Entry { handler, ..Entry::declare::<M>() });
    }

    fn put(&mut self, entry: Entry) {
        match self.places.get(entry.name) {
            Some(place) => self.entries[*place] = entry,
            None => {
                self.places.insert(entry.name, self.entries.len());
                self.entries.push(entry);
            }
        }
    }

    /// Every method, in the order of its declaration.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// A method by name.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.places.get(name).map(|place| &self.entries[*place])
    }

    /// The names that `hello-ok` lists.
    pub fn gateway_names(&self) -> Vec<&'static str> {
        let on_gateway = self.entries.iter().filter(|entry| entry.terms.is_on_gateway() && entry.handler.is_some());
        on_gateway.map(|entry| entry.name).collect()
    }

    /// The names of the methods that a person's browser may call.
    pub fn console_names(&self, connection: &Connection) -> Vec<&'static str> {
        let may = |entry: &&Entry| {
            entry.handler.is_some()
                && entry.terms.role != Role::Node
                && connection.carries(&entry.terms)
                && connection.may(&entry.terms.demand).is_ok()
        };
        self.entries.iter().filter(may).map(|entry| entry.name).collect()
    }

    /// The lane of a method; one that is not in the list is answered in the ordinary one.
    pub fn lane(&self, name: &str) -> Lane {
        self.find(name).map_or(Lane::Ordinary, |entry| entry.terms.lane)
    }
}

/// The refusal of a method that a door does not carry.
pub(crate) fn no_method(method: &str) -> Failure {
    let shown: String = method.chars().take(MAX_SHOWN).collect();
    Failure::new(ErrorCode::NotFound, format!("there is no method {shown:?}"))
}

/// Whether the parameters of a call may ask for a power.
pub(crate) fn decide_power(call: &Call<'_>, power: Power) -> Result<(), Refusal> {
    authority::decide_power(&call.caller, &call.demand, power)
}

impl Service {
    /// Calls a method by name, as the local socket and the command line do.
    pub async fn call(
        &self,
        caller: Arc<Caller>,
        method: &str,
        params: Value,
        events: Option<crate::EventSink>,
    ) -> Result<Box<RawValue>, Failure> {
        let methods = self.methods();
        // Only declared methods can be called.
        let Some(entry) = methods.find(method).filter(|entry| entry.terms.is_local()) else {
            return Err(no_method(method));
        };
        let demand = entry.terms.demand;
        authority::decide(&caller, &demand)?;
        let call = Call { method: entry.name, demand, service: self, caller, hub: None, client: None, events };
        answer(entry, &call, params).await.map_err(MethodError::into_failure)
    }
}

impl Hub {
    /// Answers a client's request if the door carries the method and the client may call it. A door may refuse a
    /// request earlier, to save work; it cannot admit a request that is refused here.
    pub async fn answer(
        &self,
        entry: &Entry,
        client: ClientRequest<'_>,
        params: Option<Value>,
    ) -> Result<Box<RawValue>, MethodError> {
        if !client.connection.carries(&entry.terms) {
            return Err(no_method(entry.name).into());
        }
        client.connection.may(&entry.terms.demand)?;
        let mut params = params.unwrap_or_default();
        if let Some(answer) = self.answered_elsewhere(entry, &client, &params).await {
            return answer;
        }
        let caller = match entry.terms.takes_session {
            true => self.session_caller(client.connection, &mut params)?,
            false => client.connection.standing().clone(),
        };
        let (method, demand) = (entry.name, entry.terms.demand);
        let (service, hub) = (self.service(), Some(self));
        let call = Call { method, demand, service, caller, hub, client: Some(client), events: None };
        answer(entry, &call, params).await
    }

    /// Removes `sessionKey` and `agentId` from the parameters; they name the session and agent of the call.
    fn session_caller(&self, connection: &Connection, params: &mut Value) -> Result<Arc<Caller>, RpcError> {
        let mut take = |name: &str| match params.as_object_mut().and_then(|map| map.shift_remove(name)) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(RpcError::invalid(format!("{name} must be string"))),
        };
        let (session, agent) = (take("sessionKey")?, take("agentId")?);
        let key = Key::read(&connection.workspace, session.as_deref().unwrap_or("main"), agent.as_deref())?;
        self.check_agent(&key.agent)?;
        Ok(connection.caller(&key.agent, Some(key.full)))
    }
}

async fn answer(entry: &Entry, call: &Call<'_>, params: Value) -> Result<Box<RawValue>, MethodError> {
    match &entry.handler {
        Some(handler) => handler.answer(call, params).await,
        None => Err(no_method(entry.name).into()),
    }
}

/// A handler with the types of its method erased.
trait Answers: Send + Sync {
    fn answer<'a>(&'a self, call: &'a Call<'a>, params: Value) -> BoxFuture<'a, Result<Box<RawValue>, MethodError>>;
}

/// The parameter that names a run, in every method that takes one.
pub(crate) const RUN_PARAMETER: &str = "runId";
/// Methods that answer in the same way for a run that does not exist and for one that the caller may not see. Each checks
/// the workspace itself, where the answer is made.
pub(crate) const SILENT_ABOUT_RUNS: [&str; 2] = ["tools.cancel", "runs.subscribe"];

/// Refuses a run of another workspace before any handler sees it: the run does not exist for the caller.
async fn check_run(call: &Call<'_>, params: &Value) -> Result<(), MethodError> {
    let named = params.get(RUN_PARAMETER).and_then(Value::as_str).and_then(|text| RunId::parse(text).ok());
    let Some(run_id) = named.filter(|_| !SILENT_ABOUT_RUNS.contains(&call.method)) else { return Ok(()) };
    let (engine, caller) = (call.service.engine().clone(), call.caller.clone());
    blocking(move || Ok(engine.check_run(&caller, run_id)?)).await
}

/// The compiled schema of a method's parameters.
struct Reader<M> {
    checker: OnceLock<Option<params::Checker>>,
    of: PhantomData<fn() -> M>,
}

impl<M> Default for Reader<M> {
    fn default() -> Self {
        Self { checker: OnceLock::new(), of: PhantomData }
    }
}

impl<M: Method> Reader<M> {
    /// Reads the parameters, calls the handler, and serialises the answer; every method is called this way.
    async fn answer<H: Handle<M>>(
        &self,
        handler: &H,
        call: &Call<'_>,
        params: Value,
    ) -> Result<Box<RawValue>, MethodError> {
        let Some(checker) = self.checker.get_or_init(params::Checker::of_method::<M>) else {
            return Err(RpcError::unavailable(format!("the program has no schema of {}", call.method)).into());
        };
        check_run(call, &params).await?;
        let params = params::of_call::<M>(call, checker, params)?;
        let answer = handler.handle(call, params).await?;
        serde_json::value::to_raw_value(&answer)
            .map_err(|error| RpcError::unavailable(format!("the answer cannot be written: {error}")).into())
    }
}

macro_rules! built_in {
    ($name:ident, $handler:ty, $take:expr) => {
        struct $name<M>(Reader<M>);

        impl<M> Default for $name<M> {
            fn default() -> Self {
                Self(Reader::default())
            }
        }

        impl<M: Method> Answers for $name<M>
        where
            $handler: Handle<M>,
        {
            fn answer<'a>(
                &'a self,
                call: &'a Call<'a>,
                params: Value,
            ) -> BoxFuture<'a, Result<Box<RawValue>, MethodError>> {
                Box::pin(async move {
                    let take: fn(&'a Call<'a>) -> Result<&'a $handler, MethodError> = $take;
                    self.0.answer(take(call)?, call, params).await
                })
            }
        }
    };
}

built_in!(ByService, Service, |call| Ok(call.service));
built_in!(ByHub, Hub, |call| call.hub());

struct ByHandler<M, H> {
    reader: Reader<M>,
    handler: H,
}

impl<M, H> ByHandler<M, H> {
    fn new(handler: H) -> Self {
        Self { reader: Reader::default(), handler }
    }
}

impl<M: Method, H: Handle<M>> Answers for ByHandler<M, H> {
    fn answer<'a>(&'a self, call: &'a Call<'a>, params: Value) -> BoxFuture<'a, Result<Box<RawValue>, MethodError>> {
        Box::pin(self.reader.answer(&self.handler, call, params))
    }
}
