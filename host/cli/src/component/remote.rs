//! `weir component push`, `ls`, `show` and `rm` where a cluster is configured.

use weir_model::ErrorNumber;

use super::NamedComponent;
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output;
use crate::store::{digest_of, short};

pub(super) fn push(client: &Client, component: &NamedComponent, global: &Global) -> anyhow::Result<()> {
    let NamedComponent { bytes, name, version } = component;
    let digest = digest_of(bytes);
    let is_this =
        |there: &weir_protocol::api::ComponentStatus| there.name == *name && there.version == *version && there.digest == digest;
    let already = client.components()?.iter().any(is_this);
    if !already {
        client.push(bytes, digest, Some((name, version)), &mut |_| {})?;
    }
    component.pushed(digest, already, &format!("the store of the cluster at {}", client.address()), global)
}

pub(super) fn list(client: &Client, global: &Global) -> anyhow::Result<()> {
    let all = client.components()?;
    if global.json {
        return output::print_json(&all);
    }
    if all.is_empty() {
        global.note(&format!(
            "the store of the cluster at {} is empty; `weir job submit` brings what a job names",
            client.address()
        ));
        return Ok(());
    }
    let header = ["NAME", "VERSION", "DIGEST", "SIZE", "PUSHED"].map(str::to_owned).to_vec();
    let rows = all.iter().map(|there| {
        let digest = short(&there.digest.to_string()).to_owned();
        vec![there.name.clone(), there.version.clone(), digest, output::size(there.size_bytes), output::ago(there.pushed_at_ms)]
    });
    output::print(&output::table(&std::iter::once(header).chain(rows).collect::<Vec<_>>()))
}

/// What the cluster says of a component, and what that says of itself. What it is made of only its bytes tell, which stay there.
pub(super) fn show(client: &Client, name: &str, version: &str, global: &Global) -> anyhow::Result<()> {
    let all = client.components()?;
    let Some(there) = all.iter().find(|there| there.name == name && there.version == version) else {
        let message = format!("there is no component {name}@{version} in the store of the cluster at {}", client.address());
        let hint = match weir_plan::nearest(name, all.iter().map(|there| there.name.as_str())) {
            Some(near) => {
                let versions = all.iter().filter(|there| there.name == near).map(|there| format!("{near}@{}", there.version));
                format!("there is {}; --local looks at the store of this machine", versions.collect::<Vec<_>>().join(", "))
            }
            None => "`weir component ls` lists what there is; --local looks at the store of this machine".to_owned(),
        };
        return Err(Failure::new(ErrorNumber::NoSuchComponent, Exit::Usage, message).hint(hint).into());
    };
    let description = client.description(there.digest)?;
    if global.json {
        let there = serde_json::json!(there);
        return output::print_json(
            &description.map_or(there.clone(), |description| super::with_description(there, &description)),
        );
    }
    output::print(&format!(
        "{name}@{version} in the store of the cluster at {}\ndigest     {}\nsize       {}\npushed     {}\n{}",
        client.address(),
        there.digest,
        output::size(there.size_bytes),
        output::ago(there.pushed_at_ms),
        description.as_ref().map_or_else(String::new, super::text::description)
    ))
}

pub(super) fn remove(client: &Client, name: &str, version: &str, global: &Global) -> anyhow::Result<()> {
    client.remove_component(name, version)?;
    global.note(&format!("removed {name}@{version} from the cluster at {}", client.address()));
    Ok(())
}
