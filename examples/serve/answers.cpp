#include "examples/serve/answers.h"

#include <algorithm>
#include <utility>

#include "trainer/inference/detail/json.h"

namespace athanor::serve {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const UploadedFile& file, const Answer& answer) {
  Json json{{"image", file.name ? Json(*file.name) : Json()}};
  if (!answer.error.empty()) {
    json["error"] = answer.error;
    return json;
  }
  json.update(athanor::json_of(answer.task, answer.top));
  return json;
}

}  // namespace

Reply refusal(int code, const std::string& error) {
  return {code, line_of({{"error", error}})};
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
    return none ? refusal(code, job.answers.front().error) : Reply{code, line_of(json)};
  }
  Json images = Json::array();
  for (std::size_t i = 0; i < job.files.size(); ++i) images.push_back(json_of(job.files[i], job.answers[i]));
  Json json{{"images", std::move(images)}};
  if (none) json["error"] = "none of the " + std::to_string(job.files.size()) + " images could be read";
  return {code, line_of(json)};
}

Reply health(const Model* model, std::size_t names) {
  if (!model) return {200, line_of({{"status", "ok"}, {"models", names}})};
  const ModelInfo& info = model->predictor.info();
  Json json{{"status", "ok"},
            {"model", info.model},
            {"classes", info.images.classes},
            {"images", {info.images.height, info.images.width, info.images.channels}},
            {"generation", model->generation}};
  if (info.task != LabelKind::classes) json["task"] = name_of(info.task);
  if (names > 1) json["models"] = names;
  return {200, line_of(json)};
}

}  // namespace athanor::serve
