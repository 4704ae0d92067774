#include "examples/serve/open_inference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/base/version.h"
#include "trainer/inference/detail/json.h"

namespace athanor::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPlatform[] = "athanor_safetensors";

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  while (path.starts_with('/')) {
    path.remove_prefix(1);
    parts.push_back(path.substr(0, path.find('/')));
    path.remove_prefix(parts.back().size());
  }
  return parts;
}

Json tensor(const char* name, const char* datatype, std::vector<std::int64_t> shape) {
  return {{"name", name}, {"datatype", datatype}, {"shape", std::move(shape)}};
}

/// A finished image's numbers of an output.
const std::vector<float>& floats_of(const Answer& answer, OutputKind::What what) {
  return what == OutputKind::logits ? answer.logits : answer.probabilities;
}

bool is_present(const ModelInfo& info, const Answer& answer, std::size_t k) {
  return double{answer.probabilities[k]} >= info.threshold_of(static_cast<std::int64_t>(k));
}

template <class T> void append(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);  // little-endian, as all systems that this is built for
  out.append(bytes, sizeof value);
}

/// "value:index:class" of the `count` largest, NaN first; equal ones in the order of their indices.
std::vector<std::string> classification(const Predictor& predictor, const std::vector<float>& values,
                                        std::int64_t count) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](std::size_t a, std::size_t b) {
    const float x = values[a], y = values[b];
    if (std::isnan(x) != std::isnan(y)) return std::isnan(x);
    return x > y || (!(x < y) && a < b);
  });
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t k = order[static_cast<std::size_t>(i)];
    texts.push_back(
        fmt::format("{}:{}:{}", values[k], k, predictor.class_name(static_cast<std::int64_t>(k))));
  }
  return texts;
}

/// An output's elements, in either form.
struct Elements {
  bool is_binary;
  Json json = Json::array();
  std::string bytes = {};

  void add(float value) { is_binary ? append(bytes, value) : json.push_back(double{value}); }
  void add(std::int64_t value) { is_binary ? append(bytes, value) : json.push_back(value); }
  void add(bool value) {
    if (is_binary) {
      bytes += static_cast<char>(value);
    } else {
      json.push_back(value);
    }
  }
  void add(const std::string& text) {
    if (is_binary) {
      append(bytes, static_cast<std::uint32_t>(text.size()));
      bytes += text;
    } else {
      json.push_back(text);
    }
  }
};

void add_elements(const WantedOutput& output, const Predictor& predictor, const Answer& answer,
                  Elements& elements) {
  const OutputKind::What what = output.kind->what;
  if (what == OutputKind::classes) {
    elements.add(answer.top.at(0).index);
  } else if (what == OutputKind::labels) {
    for (std::size_t k = 0; k < answer.probabilities.size(); ++k)
      elements.add(is_present(predictor.info(), answer, k));
  } else if (output.classification > 0) {
    for (const std::string& text : classification(predictor, floats_of(answer, what), output.classification))
      elements.add(text);
  } else {
    for (const float value : floats_of(answer, what)) elements.add(value);
  }
}

}  // namespace

const char* InferencePath::methods() const {
  const bool changes = what == infer || what == index || what == load || what == unload;
  return changes ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

std::optional<InferencePath> parse_inference_path(std::string_view path) {
  const std::vector<std::string_view> parts = parts_of(path);
  const auto is = [&](std::size_t at, std::string_view word) {
    return at < parts.size() && parts[at] == word;
  };
  if (!is(0, "v2")) return std::nullopt;
  if (parts.size() == 1) return InferencePath{InferencePath::server};
  if (parts.size() == 3 && is(1, "health")) {
    if (is(2, "live")) return InferencePath{InferencePath::live};
    if (is(2, "ready")) return InferencePath{InferencePath::ready};
  }
  if (parts.size() == 3 && is(1, "repository") && is(2, "index")) return InferencePath{InferencePath::index};
  if (parts.size() == 5 && is(1, "repository") && is(2, "models") && !parts[3].empty()) {
    const std::string name(parts[3]);
    if (is(4, "load")) return InferencePath{InferencePath::load, name};
    if (is(4, "unload")) return InferencePath{InferencePath::unload, name};
  }
  if (parts.size() < 3 || !is(1, "models") || parts[2].empty()) return std::nullopt;
  InferencePath found{InferencePath::metadata, std::string(parts[2])};
  std::size_t at = 3;
  if (is(3, "versions")) {
    if (parts.size() < 5 || parts[4].empty()) return std::nullopt;
    found.version = parts[4];
    at = 5;
  }
  if (at == parts.size()) return found;
  if (at + 1 != parts.size()) return std::nullopt;
  if (is(at, "ready")) {
    found.what = InferencePath::model_ready;
  } else if (is(at, "infer")) {
    found.what = InferencePath::infer;
  } else {
    return std::nullopt;
  }
  return found;
}

Reply server_metadata() {
  return {200, line_of({{"name", "athanor"},
                        {"version", version()},
                        {"extensions", {"binary_tensor_data", "classification", "model_repository"}}})};
}

Reply model_metadata(const Models& models, const Model& model) {
  const ModelInfo& info = model.predictor.info();
  const ImageSpec& images = info.images;
  const std::vector<std::int64_t> shape{-1, images.height, images.width, images.channels};
  Json outputs = Json::array(), versions = Json::array(), classes = Json::array();
  for (const OutputKind& kind : outputs_of(info.task)) {
    outputs.push_back(tensor(
        kind.name, kind.datatype,
        kind.per_class ? std::vector<std::int64_t>{-1, images.classes} : std::vector<std::int64_t>{-1}));
  }
  for (const Models::Listed& one : models.list()) {
    if (one.name == model.name && one.model) versions.push_back(std::to_string(one.version));
  }
  for (std::int64_t k = 0; k < images.classes; ++k) classes.push_back(model.predictor.class_name(k));
  return {200, line_of({{"name", model.name},
                        {"versions", std::move(versions)},
                        {"platform", kPlatform},
                        {"inputs", Json::array({tensor("images", "UINT8", shape)})},
                        {"outputs", std::move(outputs)},
                        {"parameters",
                         {{"other_forms_of_inputs",
                           Json::array({tensor("images", "FP32", shape), tensor("images", "BYTES", {-1})})},
                          {"mean", info.pixels.mean},
                          {"std", info.pixels.stddev},
                          {"task", name_of(info.task)},
                          {"network", info.model},
                          {"classes", std::move(classes)}}}})};
}

Reply model_ready(const Model& model) {
  return {200, line_of({{"name", model.name}, {"version", std::to_string(model.version)}, {"ready", true}})};
}

Reply server_ready(const Models& models) {
  if (const std::optional<std::string> why = models.not_ready()) return refusal(503, *why);
  return {200, line_of({{"ready", true}})};
}

Reply model_index(const Models& models, std::string_view body) {
  bool only_ready = false;
  if (!body.empty()) {
    const Json request = Json::parse(body, nullptr, false);
    ATH_CHECK(request.is_object(), "the request must be a JSON object, or empty");
    const auto at = request.find("ready");
    ATH_CHECK(at == request.end() || at->is_boolean(), "ready: must be true or false, but is {}",
              at->type_name());
    only_ready = at != request.end() && at->get<bool>();
  }
  Json all = Json::array();
  for (const Models::Listed& one : models.list()) {
    if (only_ready && !one.model) continue;
    Json line{{"name", one.name}};
    if (one.version > 0) line["version"] = std::to_string(one.version);
    line["state"] = one.model ? "READY" : "UNAVAILABLE";
    line["reason"] = one.reason;
    all.push_back(std::move(line));
  }
  return {200, line_of(all)};
}

Reply no_model(const Models& models, std::string_view name, std::string_view version) {
  std::vector<std::string> names;
  bool is_known = false, is_loaded = false;
  for (const Models::Listed& one : models.list()) {
    if (names.empty() || names.back() != one.name) names.push_back(one.name);
    is_known |= one.name == name;
    is_loaded |= one.name == name && one.model;
  }
  const std::string quoted = printable(name.substr(0, 80));
  if (!is_known) {
    return refusal(
        404, fmt::format("there is no model '{}'; there {} {}", quoted, names.size() == 1 ? "is" : "are",
                         names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  if (!is_loaded) return refusal(503, fmt::format("the model '{}' is not loaded", quoted));
  return refusal(404, fmt::format("the model '{}' has no version '{}' that is loaded", quoted,
                                  printable(version.substr(0, 40))));
}

Reply inference_reply(const Job& job, const InferenceRequest& request) {
  const auto failed = [&](const auto& is_one) -> std::optional<std::string> {
    for (std::size_t i = 0; i < job.answers.size(); ++i) {
      const Answer& answer = job.answers[i];
      if (answer.error.empty() || !is_one(answer)) continue;
      return answer.is_late ? answer.error : fmt::format("images: {}: {}", i, answer.error);
    }
    return std::nullopt;
  };
  if (const auto why = failed([](const Answer& one) { return one.is_late; })) return refusal(503, *why);
  if (const auto why = failed([](const Answer& one) { return one.is_fault; })) return refusal(500, *why);
  if (const auto why = failed([](const Answer&) { return true; })) return refusal(400, *why);
  const Predictor& predictor = job.model->predictor;
  Json outputs = Json::array();
  std::string binary;
  bool has_binary = false;
  for (const WantedOutput& output : request.outputs) {
    Elements elements{.is_binary = output.binary};
    for (const Answer& answer : job.answers) add_elements(output, predictor, answer, elements);
    std::vector<std::int64_t> shape{std::ssize(job.answers)};
    if (output.classification > 0) {
      shape.push_back(output.classification);
    } else if (output.kind->per_class) {
      shape.push_back(predictor.info().images.classes);
    }
    Json json = tensor(output.kind->name, output.classification > 0 ? "BYTES" : output.kind->datatype,
                       std::move(shape));
    if (output.binary) {
      has_binary = true;
      json["parameters"] = {{"binary_data_size", elements.bytes.size()}};
      binary += elements.bytes;
    } else {
      json["data"] = std::move(elements.json);
    }
    outputs.push_back(std::move(json));
  }
  Json answer{{"model_name", job.model->name}, {"model_version", std::to_string(job.model->version)}};
  if (request.id) answer["id"] = *request.id;
  answer["outputs"] = std::move(outputs);
  Reply reply{200, line_of(answer)};
  if (has_binary) {
    reply.json_bytes = reply.text.size();
    reply.text += binary;
  }
  return reply;
}

}  // namespace athanor::serve
