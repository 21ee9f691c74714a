//! `_Send` and `_Recv`: the two ends of an edge that was cut.

use framework::kernel::{async_kernel, kernel};
use framework::shapes::{no_outputs, unknown};
use framework::{
    AsyncContext, AsyncKernel, BoxFuture, ControlFlow, Delivery, Kernel, KernelBuild, KernelContext, Op, Outputs,
    RendezvousKey, Value,
};
use smallvec::smallvec;
use tensor::{Result, internal};

/// Both ends, under both names.
pub fn ops() -> Vec<Op> {
    vec![send("_Send"), send("_HostSend"), recv("_Recv"), recv("_HostRecv")]
}

fn send(name: &str) -> Op {
    let op = Op::new(name).input("tensor: T").attr("T: type");
    edge(op).shape(no_outputs).control_flow(ControlFlow::Send).kernel(kernel(|b| Ok(Send(Edge::new(b)?))))
}

fn recv(name: &str) -> Op {
    let op = Op::new(name).output("tensor: tensor_type").attr("tensor_type: type");
    edge(op).shape(unknown).kernel(async_kernel(|b| Ok(Recv(Edge::new(b)?))))
}

fn edge(op: Op) -> Op {
    op.attr("tensor_name: string")
        .attr("send_device: string")
        .attr("send_device_incarnation: int")
        .attr("recv_device: string")
        .attr("client_terminated: bool = false")
        .stateful()
}

/// The edge that was cut, and its key outside loops.
struct Edge {
    send_device: String,
    incarnation: u64,
    recv_device: String,
    name: String,
    key: RendezvousKey,
}

impl Edge {
    fn new(b: &KernelBuild<'_>) -> Result<Edge> {
        let (send_device, recv_device): (String, String) = (b.attr("send_device")?, b.attr("recv_device")?);
        let name: String = b.attr("tensor_name")?;
        // The wire has no unsigned attribute: the bits of the incarnation travel as they are.
        let incarnation = b.attr::<i64>("send_device_incarnation")? as u64;
        let key = RendezvousKey::new(&send_device, incarnation, &recv_device, &name);
        Ok(Edge { send_device, incarnation, recv_device, name, key })
    }

    fn with_key<R>(&self, (frame, iteration): (u64, u64), f: impl FnOnce(&RendezvousKey) -> R) -> R {
        if (frame, iteration) == (0, 0) {
            return f(&self.key);
        }
        let (from, to) = (&self.send_device, &self.recv_device);
        f(&RendezvousKey::in_frame(from, self.incarnation, to, &self.name, frame, iteration))
    }
}

struct Send(Edge);

impl Kernel for Send {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let delivery = match ctx.input_value(0) {
            Value::Dead => Delivery::Dead,
            Value::Ref(variable) => Delivery::Tensor(variable.read()?),
            Value::Tensor(_) => Delivery::Tensor(ctx.take(0)),
            Value::Empty => return Err(internal!("nothing arrived to be sent as {}", self.0.key)),
        };
        self.0.with_key(ctx.frame(), |key| ctx.step().rendezvous.send(key, delivery))
    }
}

struct Recv(Edge);

impl AsyncKernel for Recv {
    fn try_compute(&self, ctx: &mut KernelContext<'_>) -> Option<Result<()>> {
        let delivery = self.0.with_key(ctx.frame(), |key| ctx.step().rendezvous.try_recv(key))?;
        Some(delivery.and_then(|d| ctx.set_value(0, d.into())))
    }

    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        let delivery = self.0.with_key(ctx.frame, |key| ctx.step.rendezvous.recv(key));
        Box::pin(async move { Ok(smallvec![delivery.await?.into()]) })
    }

    fn receives(&self) -> Option<&RendezvousKey> {
        Some(&self.0.key)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::run;
    use framework::Scope;
    use framework::scope::NodeBuilder;
    use tensor::{DType, Tensor};

    fn edge<'s>(s: &'s Scope, op: &str, name: &str) -> NodeBuilder<'s> {
        s.node(op)
            .attr("tensor_name", name)
            .attr("send_device", "/job:a/replica:0/task:0/device:CPU:0")
            .attr("send_device_incarnation", -1i64)
            .attr("recv_device", "/job:b/replica:0/task:0/device:CPU:0")
    }

    #[test]
    fn what_is_sent_is_received_under_the_same_name() {
        let value = Tensor::from([1.5f32, 2.5]);
        let found = run(|s| {
            let sent = edge(s, "_Send", "edge_1_x").input(s.constant(value.clone())?).build()?;
            let received = edge(s, "_HostRecv", "edge_1_x").attr("tensor_type", DType::F32).control(sent).output()?;
            Ok(vec![received])
        });
        assert_eq!(found.unwrap(), [value]);
    }

    #[test]
    fn another_name_is_another_edge() {
        let found = run(|s| {
            let sent = edge(s, "_Send", "edge_1_x").input(s.constant(1.0f32)?).build()?;
            Ok(vec![edge(s, "_Recv", "edge_2_x").attr("tensor_type", DType::F32).control(sent).output()?])
        });
        assert!(found.is_err());
    }
}
