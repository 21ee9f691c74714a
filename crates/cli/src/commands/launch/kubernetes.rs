//! Manifests for Kubernetes: a cluster that needs nothing but kubectl.
//!
//! A headless Service gives every pod a name of its own, and pods know their number from a label; so the whole
//! cluster is written down before anything runs, and each container gets its place in `TF_CONFIG`, like everywhere
//! else. Stateful sets keep their pods running for ever; as indexed jobs they end when their programs do.

use super::program;
use crate::yaml;
use clap::{Args, ValueEnum};
use ferroflow::{ClusterSpec, Code, Error, Result, TaskName};
use serde_json::{Value, json};

/// What is written into manifests.
#[derive(Args)]
#[command(next_help_heading = "Kubernetes")]
pub struct Manifests {
    /// Write manifests for Kubernetes to standard output instead of running anything
    #[arg(long)]
    pub kubernetes: bool,
    /// The container image, which has the program in it
    #[arg(long, requires = "kubernetes")]
    image: Option<String>,
    /// What the cluster is called
    #[arg(long, requires = "kubernetes", default_value = "ferroflow")]
    name: String,
    /// The namespace; that of kubectl unless given
    #[arg(long, requires = "kubernetes")]
    namespace: Option<String>,
    /// The kind of the pods' owner: stateful-set, which runs for ever, or job, which ends with its program
    #[arg(long, value_enum, requires = "kubernetes", default_value_t, hide_possible_values = true)]
    kind: Kind,
    /// Cores for each task
    #[arg(long, requires = "kubernetes", default_value = "1")]
    cpu: String,
    /// Memory for each task
    #[arg(long, requires = "kubernetes", default_value = "1Gi")]
    memory: String,
    /// A secret with certificates, which tasks find in /etc/ferroflow/tls
    #[arg(long, value_name = "SECRET", requires = "kubernetes")]
    tls_secret: Option<String>,
}

/// The kind of the pods' owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
enum Kind {
    /// StatefulSets
    #[default]
    StatefulSet,
    /// Indexed Jobs
    Job,
}

/// The variable that tells a container its number; Kubernetes fills it in where $(…) stands.
const INDEX: &str = "FERROFLOW_TASK_INDEX";

impl Manifests {
    /// The manifests: a Service, and the owners of the ps' and the workers' pods.
    pub fn manifests(&self, ps: u32, workers: u32, ps_server: bool, port: u16, program: &[String]) -> Result<String> {
        check_name(&self.name)?;
        let image = self.image.as_deref().ok_or_else(|| {
            invalid("--kubernetes wants --image: the container image that has the program in it".into())
        })?;
        let cluster = self.cluster(ps, workers, port);
        cluster.check()?;
        let mut documents = vec![self.service(port)];
        for job in cluster.jobs() {
            let is_server = program.is_empty() || (job == "ps" && ps_server);
            let own = server_program(job, port);
            let arguments = self.arguments(if is_server { &own } else { program }, &cluster, job);
            documents.push(self.owner(&cluster, job, image, port, arguments)?);
        }
        Ok(documents.iter().map(|document| format!("---\n{}", yaml::write(document))).collect())
    }

    fn cluster(&self, ps: u32, workers: u32, port: u16) -> ClusterSpec {
        let name = &self.name;
        let addresses = |job: &str, count| -> Vec<String> {
            (0..count).map(|i| format!("{name}-{job}-{i}.{name}:{port}")).collect()
        };
        let jobs = [("ps", ps), ("worker", workers)].into_iter().filter(|(_, count)| *count > 0);
        jobs.fold(ClusterSpec::new(), |cluster, (job, count)| cluster.job(job, addresses(job, count)))
    }

    /// The arguments of all containers of a job: what differs between them is filled in by Kubernetes.
    fn arguments(&self, program: &[String], cluster: &ClusterSpec, job: &str) -> Vec<String> {
        let number = format!("$({INDEX})");
        let hosts = program::flags(cluster, &TaskName::new(job, 0)).into_iter();
        let flags: Vec<String> =
            hosts.filter(|flag| !flag.starts_with("--task_index=")).chain([format!("--task_index={number}")]).collect();
        let fill = |argument: &String| match argument.as_str() {
            program::FLAGS => flags.clone(),
            _ => vec![
                argument
                    .replace(program::FLAGS, &flags.join(" "))
                    .replace("{cluster}", &cluster.to_string())
                    .replace("{job}", job)
                    .replace("{index}", &number),
            ],
        };
        program.iter().flat_map(fill).collect()
    }

    fn metadata(&self, name: String) -> Value {
        let mut metadata = json!({"name": name, "labels": {"app.kubernetes.io/name": self.name}});
        if let Some(namespace) = &self.namespace {
            metadata["namespace"] = json!(namespace);
        }
        metadata
    }

    fn service(&self, port: u16) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self.metadata(self.name.clone()),
            "spec": {
                "clusterIP": "None",
                // Tasks look for each other before they are ready.
                "publishNotReadyAddresses": true,
                "selector": {"app.kubernetes.io/name": self.name},
                "ports": [{"name": "grpc", "port": port, "appProtocol": "kubernetes.io/h2c"}],
            },
        })
    }

    fn owner(&self, cluster: &ClusterSpec, job: &str, image: &str, port: u16, arguments: Vec<String>) -> Result<Value> {
        let count = cluster.num_tasks(job)?;
        let metadata = self.metadata(format!("{}-{job}", self.name));
        let labels = json!({"app.kubernetes.io/name": self.name, "app.kubernetes.io/component": job});
        let template = json!({"metadata": {"labels": labels}, "spec": self.pod(cluster, job, image, port, arguments)});
        Ok(match self.kind {
            Kind::StatefulSet => json!({
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": metadata,
                "spec": {
                    "serviceName": self.name,
                    "replicas": count,
                    "podManagementPolicy": "Parallel",
                    "selector": {"matchLabels": labels},
                    "template": template,
                },
            }),
            Kind::Job => json!({
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": metadata,
                "spec": {
                    "completionMode": "Indexed",
                    "completions": count,
                    "parallelism": count,
                    "template": template,
                },
            }),
        })
    }

    fn pod(&self, cluster: &ClusterSpec, job: &str, image: &str, port: u16, arguments: Vec<String>) -> Value {
        let probe = |every: u32, failures: u32| json!({"tcpSocket": {"port": "grpc"}, "periodSeconds": every, "failureThreshold": failures});
        let amounts = json!({"cpu": self.cpu, "memory": self.memory});
        let mut container = json!({
            "name": job,
            "image": image,
            "env": self.environment(cluster, job),
            "ports": [{"name": "grpc", "containerPort": port}],
            "startupProbe": probe(1, 300),
            "readinessProbe": probe(5, 3),
            "resources": {"requests": amounts, "limits": amounts},
        });
        if let Some((command, rest)) = arguments.split_first() {
            container["command"] = json!([command]);
            container["args"] = json!(rest);
        }
        let mut pod = json!({"terminationGracePeriodSeconds": 30});
        if self.kind == Kind::Job {
            pod["restartPolicy"] = json!("OnFailure");
            pod["subdomain"] = json!(self.name);
        } else {
            // A task that no longer listens is started again.
            container["livenessProbe"] = probe(10, 6);
        }
        if let Some(secret) = &self.tls_secret {
            container["volumeMounts"] = json!([{"name": "tls", "mountPath": "/etc/ferroflow/tls", "readOnly": true}]);
            pod["volumes"] = json!([{"name": "tls", "secret": {"secretName": secret}}]);
        }
        pod["containers"] = json!([container]);
        pod
    }

    fn environment(&self, cluster: &ClusterSpec, job: &str) -> Value {
        let field = match self.kind {
            Kind::StatefulSet => "metadata.labels['apps.kubernetes.io/pod-index']",
            Kind::Job => "metadata.annotations['batch.kubernetes.io/job-completion-index']",
        };
        let number = json!(format!("$({INDEX})"));
        // The number comes as text, which every reader of TF_CONFIG is given as a number.
        let config = program::tf_config(cluster, &TaskName::new(job, 0), number.clone());
        let config = config.replace(&number.to_string(), number.as_str().unwrap_or_default());
        json!([
            {"name": INDEX, "valueFrom": {"fieldRef": {"fieldPath": field}}},
            {"name": "TF_CONFIG", "value": config},
        ])
    }
}

/// A server of ours as the program of a container, listening on every interface of its pod.
fn server_program(job: &str, port: u16) -> Vec<String> {
    let flags = ["server".to_string(), format!("--job-name={job}"), "--task-index={index}".into()];
    [
        vec!["ferroflow".to_string()],
        flags.to_vec(),
        vec!["--cluster={cluster}".into(), format!("--bind=0.0.0.0:{port}")],
    ]
    .concat()
}

/// Names of objects become parts of DNS names.
fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts_well || name.len() > 40 || !name.chars().all(plain) || name.ends_with('-') {
        let message = format!("--name is '{name}', wanted at most 40 small letters, digits and dashes, a letter first");
        return Err(invalid(message));
    }
    Ok(())
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use expect_test::expect_file;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Manifests,
    }

    fn manifests(flags: &[&str], program: &[&str]) -> Result<String> {
        let line = ["launch", "--kubernetes", "--image=registry/trainer:1"];
        let line = Line::try_parse_from(line.iter().chain(flags)).map_err(|e| invalid(e.to_string()))?;
        let program: Vec<String> = program.iter().map(|word| word.to_string()).collect();
        line.arguments.manifests(1, 2, flags.contains(&"--kind=job"), 2222, &program)
    }

    // The expected files are checked against the schema of Kubernetes by tests/interop/kubernetes.py.
    #[test]
    fn stateful_sets_find_each_other_by_name() {
        let text = manifests(&["--name=mnist", "--tls-secret=certificates"], &["trainer", "{flags}"]).unwrap();
        expect_file!["testdata/stateful_sets.yaml"].assert_eq(&text);
    }

    #[test]
    fn jobs_end() {
        let text = manifests(&["--name=mnist", "--kind=job", "--namespace=training"], &["trainer"]).unwrap();
        expect_file!["testdata/jobs.yaml"].assert_eq(&text);
    }

    #[test]
    fn names_are_checked() {
        for name in ["", "-a", "A", "a_b", "a-", "0a"] {
            assert!(manifests(&[&format!("--name={name}")], &[]).is_err(), "{name}");
        }
    }
}
