#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "kernels/impl.h"
#include "tensor/state_dict.h"

namespace athanor::tool {

/// One op and everything it runs on.
struct OpCall {
  std::string op;
  nlohmann::json attributes;  ///< an object; what is left out takes the op's default
  StateDict tensors;          ///< inputs by name, and dL/dy as `dy` where gradients are wanted
};

/// Reads a safetensors file: its tensors (but those named expect.*, which tests compare with), and from its
/// metadata `op` and `attributes` (a JSON object). Throws IoError, and ArgumentError where the metadata has
/// no op or attributes are not an object.
OpCall read_op_call(const std::filesystem::path& file);

/// Runs it forward, and backward where it has dy. Returns `y`; with dy, `dNAME` for each differentiable
/// input; and the buffers an op moves (running_mean, ...) under their names. Throws ArgumentError on an
/// unknown op (naming the nearest one), and on an input or attribute that is missing or that the op does not
/// have.
StateDict run_op(const OpCall& call, Device device = kCpu, const std::string& impl = "automatic");

std::vector<std::string> op_names();

/// Adds the subcommand: athanor run-op FILE --out FILE [--device cpu] [--impl reference|...].
void add_run_op(CLI::App& app);

}  // namespace athanor::tool
