#include <string>
#include <utility>

#include <fmt/format.h>

#include "trainer/inference/detail/json.h"
#include "trainer/inference/evaluation.h"

namespace athanor {

std::string json_of(const Evaluation& evaluation, const Evaluated& of) {
  using Json = nlohmann::ordered_json;
  Json all{{"model", of.model},
           {"data", of.data},
           {"images", evaluation.images()},
           {"loss", evaluation.loss()},
           {"top1", evaluation.top1()},
           {fmt::format("top{}", evaluation.top()), evaluation.top_k()}};
  add_conditions(of, 100 * evaluation.top1(), all);
  Json& classes = all["classes"] = Json::array();
  for (std::int64_t c = 0; c < evaluation.classes(); ++c) {
    const auto& figures = evaluation.figures(c);
    classes.push_back({{"class", evaluation.name(c)},
                       {"index", c},
                       {"images", figures.images},
                       {"predicted", figures.predicted},
                       {"precision", figures.precision()},
                       {"recall", figures.recall()}});
  }
  const auto said = [](std::int64_t c) { return c == Evaluation::kNone ? Json(nullptr) : Json(c); };
  Json& confusion = all["confusion"] = Json::array();
  for (const auto& [pair, images] : evaluation.confusion())
    confusion.push_back({{"actual", pair.first}, {"predicted", said(pair.second)}, {"images", images}});
  Json& worst = all["mistakes"] = Json::array();
  for (const Evaluation::Mistake& one : evaluation.worst()) {
    Json entry{{"sample", one.sample}};
    const std::string where = of.where ? of.where(one.sample) : "";
    if (!where.empty()) entry["file"] = where;
    entry.update({{"actual", one.label},
                  {"predicted", said(one.predicted)},
                  {"probability", one.probability},
                  {"loss", one.loss}});
    worst.push_back(std::move(entry));
  }
  return line_of(all);
}

}  // namespace athanor
