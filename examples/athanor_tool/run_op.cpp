#include "examples/athanor_tool/run_op.h"

#include "examples/athanor_tool/ops.h"
#include "tensor/io/safetensors.h"

namespace athanor::tool {

OpCall read_op_call(const std::filesystem::path& file) {
  safetensors::Metadata metadata;
  const StateDict held = safetensors::load(file, &metadata);
  ATH_CHECK(metadata.count("op") != 0, "run-op: {}: metadata must name an op, but has no 'op'",
            file.string());

  OpCall call{metadata["op"], nlohmann::json::object(), {}};
  if (metadata.count("attributes") != 0) {
    call.attributes = nlohmann::json::parse(metadata["attributes"], nullptr, /*allow_exceptions=*/false);
    ATH_CHECK(call.attributes.is_object(), "run-op: {}: attributes must be a JSON object, but are {}",
              file.string(), metadata["attributes"]);
  }
  for (const auto& [name, value] : held) {
    if (!name.starts_with("expect.")) call.tensors.set(name, value);
  }
  return call;
}

StateDict run_op(const OpCall& call, Device device, const std::string& impl) {
  const auto op = op_table().find(call.op);
  ATH_CHECK(op != op_table().end(), "run-op: op must be one of those in --help, but is '{}'{}", call.op,
            did_you_mean(call.op, op_names()));

  Arguments arguments(call, device, impl);
  const Tensor y = op->second(arguments);
  arguments.require_all_used();

  StateDict results;
  results.set("y", y.detach());
  if (call.tensors.contains("dy")) {
    backward(y, call.tensors.tensor("dy").to(device));
    for (const auto& [name, x] : arguments.differentiable()) {
      if (const Tensor gradient = grad_of(x); gradient.defined()) results.set(name, gradient);
    }
    for (const NamedTensor& leaf : arguments.differentiable()) forget_grad(leaf.tensor);
  }
  for (const auto& [name, tensor] : arguments.buffers()) results.set(name, tensor);
  return results;
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const auto& [name, op] : op_table()) names.push_back(name);
  return names;
}

void add_run_op(CLI::App& app) {
  struct Flags {
    std::string file, out, device = "cpu", impl = "automatic";
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("run-op", "Run one op on the tensors of a file, forward and backward");
  command->add_option("file", flags->file, "Inputs (and dy), op and attributes, as safetensors")->required();
  command->add_option("--out", flags->out, "Output file for y, gradients and updated buffers")->required();
  command->add_option("--device", flags->device, "cpu")->capture_default_str();
  command->add_option("--impl", flags->impl, "automatic, reference, eigen or vendor")->capture_default_str();
  command->footer(fmt::format("Ops: {}\n", fmt::join(op_names(), " ")));
  command->callback([flags] {
    const OpCall call = read_op_call(flags->file);
    const StateDict results = run_op(call, Device::parse(flags->device), flags->impl);
    safetensors::save(flags->out, results, {{"op", call.op}, {"attributes", call.attributes.dump()}});
  });
}

}  // namespace athanor::tool
