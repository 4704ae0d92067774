#include "examples/serve/answers.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

namespace athanor::serve {
namespace {

using Json = nlohmann::ordered_json;

/// Names come from clients and files, and may be invalid UTF-8.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json json_of(const UploadedFile& file, const Answer& answer) {
  Json json{{"image", file.name ? Json(*file.name) : Json()}};
  if (!answer.error.empty()) {
    json["error"] = answer.error;
    return json;
  }
  json["top"] = Json::array();
  for (const Answer::Guess& guess : answer.top) {
    json["top"].push_back({{"class", guess.name},
                           {"index", guess.index},
                           {"probability", static_cast<double>(guess.probability)}});
  }
  return json;
}

}  // namespace

Reply refusal(int code, const std::string& error) {
  return {code, text_of({{"error", error}})};
}

Reply reply_to(const Job& job) {
  const bool none = std::none_of(job.answers.begin(), job.answers.end(),
                                 [](const Answer& one) { return one.error.empty(); });
  const bool fault =
      std::any_of(job.answers.begin(), job.answers.end(), [](const Answer& one) { return one.is_fault; });
  for (const Answer& one : job.answers) {
    if (one.is_late) return refusal(503, one.error);
  }
  const int code = !none ? 200 : fault ? 500 : 400;
  if (job.files.size() == 1) {
    const Json json = json_of(job.files.front(), job.answers.front());
    return none ? refusal(code, job.answers.front().error) : Reply{code, text_of(json)};
  }
  Json images = Json::array();
  for (std::size_t i = 0; i < job.files.size(); ++i) images.push_back(json_of(job.files[i], job.answers[i]));
  Json json{{"images", std::move(images)}};
  if (none) json["error"] = "none of the " + std::to_string(job.files.size()) + " images could be read";
  return {code, text_of(json)};
}

Reply health(const Model& model) {
  const ModelInfo& info = model.predictor.info();
  return {200, text_of({{"status", "ok"},
                        {"model", info.model},
                        {"classes", info.images.classes},
                        {"images", {info.images.height, info.images.width, info.images.channels}},
                        {"generation", model.generation}})};
}

}  // namespace athanor::serve
