//! Part 3: one database under several control planes, and rows that are what the answers say.

use anyhow::{Context as _, Result};
use spareline_control::postgres::TestDatabase;
use spareline_proto::{
    admin::v1::{CreateChannelRequest, DisableSubjectRequest, EnableSubjectRequest, GetChannelRequest},
    registry::v1::{Channel, ModelEntry},
};
use spareline_tests::{
    http::Call,
    stack::{Control, Plan, Proxy, Stack},
};
use sqlx::{Connection as _, PgConnection, Row as _};

use crate::support::{MODEL, channel};

/// A database without a single table.
async fn empty_database() -> Result<String> {
    let near = TestDatabase::new().await?;
    let name = near.options.get_database().context("a name")?;
    let mut connection = PgConnection::connect_with(&near.options).await?;
    let sql = format!("CREATE DATABASE {name}_empty TEMPLATE template0");
    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await?;
    Ok(near.url.replace(name, &format!("{name}_empty")))
}

#[tokio::test]
async fn part03_two_control_planes_at_once_on_an_empty_database() -> Result<()> {
    let url = empty_database().await?;
    let start = |name: &'static str| Control::start(name, ["--database-url".to_owned(), url.clone()]);
    let (one, two) = tokio::try_join!(start("control-1"), start("control-2"))?;
    let channel = Channel {
        name: "made-by-one".into(),
        provider: "openai".into(),
        base_url: "http://127.0.0.1:9/v1".into(),
        models: vec![ModelEntry { model: MODEL.into(), ..Default::default() }],
        ..Default::default()
    };
    let request =
        CreateChannelRequest { channel: Some(channel), secrets: vec!["sk-1".into()], ..Default::default() };
    one.channels()?.create_channel(request).await?;
    let read = GetChannelRequest { channel: "made-by-one".into() };
    assert!(
        two.channels()?.get_channel(read).await?.into_inner().channel.is_some(),
        "the other one does not see it"
    );
    Ok(())
}

#[tokio::test]
async fn part03_a_change_made_at_one_replica_reaches_the_proxies_of_the_other() -> Result<()> {
    let stack = Stack::small().await?;
    let url = ["--database-url".to_owned(), stack.database()?.url.clone()];
    let other = Control::start("control-2", url).await?;
    let proxy = Proxy::start("proxy-of-2", other.data, &[]).await?;
    stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    proxy
        .process
        .wait_for_log(spareline_tests::stack::SOON, |l| l.is("registry_applied") && *l.field("channels") == 1)
        .await?;
    let reply = Call::chat(MODEL).send(proxy.http).await?;
    assert_eq!((reply.status.as_u16(), reply.attempts()), (200, "one:ok:200"), "{}", reply.text());
    Ok(())
}

#[tokio::test]
async fn part03_abilities_are_groups_times_models_and_a_disable_keeps_the_rows() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 0, ..Plan::default() }).await?;
    let models = ["a", "b"].map(|m| ModelEntry { model: m.to_owned(), ..Default::default() }).to_vec();
    let groups = vec!["default".to_owned(), "vip".to_owned()];
    stack.create(Channel { models, groups, ..stack.channel("one", MODEL) }, &["sk-1"]).await?;
    let mut database = PgConnection::connect_with(&stack.database()?.options).await?;
    let mut rows = async || -> Result<Vec<(String, String, bool)>> {
        let sql = "SELECT group_name, model, enabled FROM abilities ORDER BY group_name, model";
        let rows = sqlx::query(sql).fetch_all(&mut database).await?;
        rows.iter().map(|r| Ok((r.try_get(0)?, r.try_get(1)?, r.try_get(2)?))).collect()
    };
    let all = |enabled: bool| {
        let pairs = [("default", "a"), ("default", "b"), ("vip", "a"), ("vip", "b")];
        pairs.map(|(g, m)| (g.to_owned(), m.to_owned(), enabled)).to_vec()
    };
    assert_eq!(rows().await?, all(true));
    let subject = channel("one");
    let mut admin = stack.control.channels()?;
    admin.disable_subject(DisableSubjectRequest { subject: subject.clone(), comment: "test".into() }).await?;
    assert_eq!(rows().await?, all(false), "after a disable");
    admin.enable_subject(EnableSubjectRequest { subject, comment: "test".into() }).await?;
    assert_eq!(rows().await?, all(true), "after an enable");
    let mut one = channel("one").context("a subject")?;
    one.model = Some("a".into());
    admin.disable_subject(DisableSubjectRequest { subject: Some(one), comment: "test".into() }).await?;
    let out: Vec<String> = rows().await?.into_iter().filter(|r| !r.2).map(|r| r.1).collect();
    assert_eq!(out, ["a", "a"], "after a disable of one model");
    Ok(())
}
