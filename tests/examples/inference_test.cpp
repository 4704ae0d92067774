#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "examples/serve/inference_request.h"
#include "examples/serve/models.h"
#include "examples/serve/open_inference.h"
#include "examples/serve/token.h"
#include "tests/support/errors.h"
#include "tests/support/small_model.h"
#include "tests/support/temp_dir.h"

// The Open Inference Protocol of `athanor serve`, without HTTP; and the models that it serves.

namespace athanor::serve::inference_test {

using Json = nlohmann::json;
using test::save_small_model;

constexpr InferenceLimits kLimits{{1, 2, 3, 4}, LabelKind::classes, 5};

/// A request with one input of 1 x 2 x 3 images.
Json request(const std::string& datatype, const Json& shape, const Json& data = nullptr) {
  Json input{{"name", "images"}, {"datatype", datatype}, {"shape", shape}};
  if (!data.is_null()) input["data"] = data;
  return {{"inputs", {input}}};
}

InferenceRequest parse(const Json& json, const std::string& tensors = {},
                       const InferenceLimits& limits = kLimits) {
  const std::string text = json.dump();
  return parse_inference_request(text + tensors, text.size(), limits);
}

template <class... Parts> void expect_refused(const Json& json, const std::string& tensors, Parts... parts) {
  EXPECT_ERROR(ArgumentError, parse(json, tensors), parts...);
}

/// With the size of the tensor that follows.
Json binary(Json json, std::size_t bytes) {
  json["inputs"][0]["parameters"]["binary_data_size"] = bytes;
  return json;
}

std::string bytes_of(const std::vector<float>& values) {
  std::string bytes(4 * values.size(), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Requests
// ---------------------------------------------------------------------------------------------------

TEST(InferenceRequest, ReadsPixelsInJson) {
  const Json flat = request("UINT8", {2, 1, 2, 3}, {0, 1, 2, 3, 4, 5, 250, 251, 252, 253, 254, 255});
  const Json nested =
      request("UINT8", {2, 1, 2, 3}, {{{{0, 1, 2}, {3, 4, 5}}}, {{{250, 251, 252}, {253, 254, 255}}}});
  for (const Json& json : {flat, nested}) {
    const InferenceRequest found = parse_inference_request(json.dump(), std::nullopt, kLimits);
    EXPECT_EQ(found.kind, ImageKind::bytes);
    EXPECT_EQ(found.images, (std::vector<std::string_view>{{"\0\1\2\3\4\5", 6}, "\xfa\xfb\xfc\xfd\xfe\xff"}));
    EXPECT_EQ(found.id, std::nullopt);
    EXPECT_EQ(found.timeout, std::nullopt);
    ASSERT_EQ(found.outputs.size(), 3u);
    EXPECT_STREQ(found.outputs[2].kind->name, "classes");
    EXPECT_FALSE(found.outputs[0].binary);
  }
}

TEST(InferenceRequest, ReadsNormalisedPixels) {
  const std::vector<float> values{-1, 0.5, 1e-8f, 3, 0.1f, -0.0f};
  const InferenceRequest json = parse(request("FP32", {1, 1, 2, 3}, values));
  ASSERT_EQ(json.images.size(), 1u);
  EXPECT_EQ(json.images[0], bytes_of(values));
  const std::string tensor = bytes_of(values);
  const std::string head = binary(request("FP32", {1, 1, 2, 3}), tensor.size()).dump(), body = head + tensor;
  const InferenceRequest found = parse_inference_request(body, head.size(), kLimits);
  EXPECT_EQ(found.kind, ImageKind::floats);
  EXPECT_EQ(found.data, nullptr);
  EXPECT_EQ(found.images.at(0).data(), body.data() + head.size());
  EXPECT_EQ(found.images.at(0).size(), tensor.size());
}

TEST(InferenceRequest, ReadsFiles) {
  const InferenceRequest json = parse(request("BYTES", {3}, {"aGVsbG8=", "", "/+8"}));
  EXPECT_EQ(json.kind, ImageKind::file);
  EXPECT_EQ(json.images, (std::vector<std::string_view>{"hello", "", "\xff\xef"}));
  const std::string tensor("\5\0\0\0hello\0\0\0\0\1\0\0\0x", 18);
  const std::string head = binary(request("BYTES", {3, 1}), tensor.size()).dump(), body = head + tensor;
  EXPECT_EQ(parse_inference_request(body, head.size(), kLimits).images,
            (std::vector<std::string_view>{"hello", "", "x"}));
}

TEST(InferenceRequest, ReadsWhatIsAskedFor) {
  Json json = request("UINT8", {1, 1, 2, 3}, {1, 2, 3, 4, 5, 6});
  json["id"] = "42";
  json["parameters"] = {{"binary_data_output", true}, {"timeout", 1500}, {"of_somebody_else", {1, 2}}};
  json["outputs"] = {{{"name", "probabilities"}, {"parameters", {{"classification", 2}}}},
                     {{"name", "classes"}, {"parameters", {{"binary_data", false}}}}};
  const InferenceRequest found = parse(json);
  EXPECT_EQ(found.id, "42");
  EXPECT_EQ(found.timeout, std::chrono::microseconds(1500));
  ASSERT_EQ(found.outputs.size(), 2u);
  EXPECT_EQ(found.outputs[0].kind->what, OutputKind::probabilities);
  EXPECT_EQ(found.outputs[0].classification, 2);
  EXPECT_TRUE(found.outputs[0].binary);
  EXPECT_FALSE(found.outputs[1].binary);
}

TEST(InferenceRequest, RefusesTensorsThatDoNotFit) {
  const Json six = {1, 2, 3, 4, 5, 6};
  expect_refused(request("UINT8", {1, 2, 3}, six), "", "images: shape must be [N, 1, 2, 3]", "[1, 2, 3]");
  expect_refused(request("UINT8", {1, 3, 1, 2}, six), "", "shape", "[1, 3, 1, 2]");
  expect_refused(request("UINT8", {0, 1, 2, 3}, Json::array()), "", "1 to 5", "0");
  expect_refused(request("UINT8", {6, 1, 2, 3}, six), "", "1 to 5", "6");
  expect_refused(request("UINT8", {-1, 1, 2, 3}, six), "", "whole numbers", "-1");
  expect_refused(request("UINT8", {1.5, 1, 2, 3}, six), "", "whole numbers", "1.5");
  expect_refused(request("UINT8", Json{{"a", 1}}, six), "", "shape must be a list");
  expect_refused(request("UINT8", {2, 1, 2, 3}, six), "", "12 numbers", "6");
  expect_refused(request("UINT8", {1, 1, 2, 3}, {1, 2, 3, 4, 5}), "", "6 numbers", "5");
  expect_refused(request("UINT8", {1, 1, 2, 3}, {1, 2, 3, 4, 5, 256}), "", "[0, 255]");
  expect_refused(request("UINT8", {1, 1, 2, 3}, {1, 2, 3, 4, 5, -6}), "", "[0, 255]");
  expect_refused(request("UINT8", {1, 1, 2, 3}, {1, 2, 3, 4, 5, 0.5}), "", "[0, 255]");
  expect_refused(request("FP32", {1, 1, 2, 3}, {1, 2, 3, 4, 5, 1e39}), "", "finite", "element 5");
  expect_refused(request("UINT8", {1, 1, 2, 3}, {1, 2, 3, nullptr}), "", "data", "null");
  expect_refused(request("UINT8", {1, 1, 2, 3}, {1, true}), "", "data", "a truth value");
  expect_refused(request("UINT8", {1, 1, 2, 3}, {1, Json::object()}), "", "data", "an object");
  expect_refused(request("UINT8", {1, 1, 2, 3}, 7), "", "either data or binary_data_size", "neither");
  expect_refused(request("UINT8", {1, 1, 2, 3}), "", "either data or binary_data_size", "neither");
  expect_refused(binary(request("UINT8", {1, 1, 2, 3}, six), 6), "123456", "both");
  expect_refused(request("UINT8", {1, 1, 2, 3}, std::vector<int>(31, 1)), "", "at most 30 numbers");
  expect_refused(request("FP16", {1, 1, 2, 3}, six), "", "UINT8, FP32 or BYTES", "'FP16'");
  expect_refused(request("BYTES", {1, 1, 2, 3}, {"aa"}), "", "shape of BYTES", "[1, 1, 2, 3]");
  expect_refused(request("BYTES", {2}, {"aa"}), "", "2 files", "1");
  expect_refused(request("BYTES", {1}, {"a-b="}), "", "base64", "'-'");
  expect_refused(request("BYTES", {1}, {"abcde"}), "", "base64", "alone");
  expect_refused(request("BYTES", {1}, std::vector<std::string>(6, "")), "", "at most 5 files");
}

TEST(InferenceRequest, RefusesBinaryTensorsThatDoNotFit) {
  const Json u8 = request("UINT8", {1, 1, 2, 3}), files = request("BYTES", {2});
  expect_refused(binary(u8, 6), "12345", "binary_data_size must be 5", "6");
  expect_refused(binary(u8, 6), "1234567", "binary_data_size must be 7", "6");
  expect_refused(binary(u8, 5), "12345", "6 bytes", "5");
  expect_refused(u8, "123456", "neither");
  Json odd = u8;
  for (const Json& size : {Json(-1), Json("6"), Json(6.0), Json(1e300)}) {
    odd["inputs"][0]["parameters"] = {{"binary_data_size", size}};
    expect_refused(odd, "123456", "binary_data_size: must be a whole number");
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  expect_refused(binary(request("FP32", {1, 1, 2, 3}), 24), bytes_of({1, 2, 3, nan, 5, 6}), "finite",
                 "element 3");
  const auto cut = [&](std::string tensor, auto... parts) {
    expect_refused(binary(files, tensor.size()), tensor, parts...);
  };
  cut(std::string("\1\0\0\0x", 5), "2 files", "1");
  cut(std::string("\1\0\0\0x\1\0\0", 8), "2 files", "1");
  cut(std::string("\1\0\0\0x\2\0\0\0y", 10), "file 1", "2 bytes", "1");
  cut(std::string("\377\377\377\377x", 5), "file 0", "4294967295");
  cut(std::string("\0\0\0\0\0\0\0\0x", 9), "1 bytes are left");
  EXPECT_ERROR(ArgumentError, parse_inference_request("{}", 3, kLimits), "Inference-Header-Content-Length",
               "2", "3");
}

TEST(InferenceRequest, RefusesWhatIsNoRequest) {
  const auto refused = [](const std::string& text, auto... parts) {
    EXPECT_ERROR(ArgumentError, parse_inference_request(text, std::nullopt, kLimits), parts...);
  };
  refused("", "JSON", "byte");
  refused("{\"inputs\": [", "JSON");
  refused("{}x", "JSON");
  refused("[]", "an object", "array");
  refused("{}", "inputs: must be a list of one tensor");
  refused("{\"inputs\": {}}", "inputs");
  refused("{\"inputs\": []}", "inputs");
  refused("{\"inputs\": [[{\"data\": [1]}]]}", "inputs");
  refused("{\"inputs\": [7]}", "inputs");
  refused("{\"inputs\": [{}]}", "name", "missing");
  refused("{\"inputs\": [{\"name\": \"x\"}]}", "'images'", "'x'");
  refused("{\"inputs\": [{\"name\": \"images\"}]}", "datatype");
  refused("{\"id\": 7, \"inputs\": []}", "id", "number");
  refused("{\"id\": \"a\", \"id\": \"b\"}", "'id' twice");
  refused("{\"inputs\": [{\"data\": [1], \"data\": [2]}]}", "'data' twice");
  refused("{\"inputs\": [{\"data\": [1]}, {\"data\": [2]}]}", "twice");
  refused("{\"x\": \"\xff\"}", "JSON");
  refused(std::string(100'000, '['), "nested at most 8");
  refused("{\"inputs\": [{\"data\": " + std::string(100'000, '[') + "1", "data", "nested at most 8");
  refused("{\"x\": " + Json(std::vector<int>(2000, 1)).dump() + "}", "1000 values");
  const auto outputs = [&](const std::string& text, auto... parts) {
    refused("{\"outputs\": " + text + "}", parts...);
  };
  outputs("7", "outputs", "number");
  outputs("[7]", "outputs", "number");
  outputs("[{\"name\": \"x\"}]", "logits, probabilities, classes", "'x'");
  outputs("[{\"name\": \"logits\"}, {\"name\": \"logits\"}]", "logits twice");
  outputs("[{\"name\": \"classes\", \"parameters\": {\"classification\": 1}}]", "classification", "classes");
  outputs("[{\"name\": \"logits\", \"parameters\": {\"classification\": 5}}]", "[1, 4]", "5");
  outputs("[{\"name\": \"logits\", \"parameters\": {\"binary_data\": 1}}]", "binary_data", "true or false");
  outputs("[{\"name\": \"logits\", \"parameters\": 1}]", "parameters", "an object");
}

TEST(InferenceRequest, SurvivesEveryCut) {
  Json json = request("UINT8", {1, 1, 2, 3}, {1, 2, 3, 4, 5, 6});
  json["outputs"] = {{{"name", "logits"}}};
  const std::string whole = json.dump();
  for (std::size_t n = 0; n < whole.size(); ++n)
    EXPECT_THROW(parse_inference_request(whole.substr(0, n), std::nullopt, kLimits), ArgumentError) << n;
}

// Paths
// ------------------------------------------------------------------------------------------------------

TEST(InferencePath, KnowsThoseOfTheProtocol) {
  const auto is = [](const char* path, InferencePath::What what, const char* model = "",
                     const char* version = "") {
    const auto found = parse_inference_path(path);
    return found && found->what == what && found->model == model && found->version == version;
  };
  EXPECT_TRUE(is("/v2", InferencePath::server));
  EXPECT_TRUE(is("/v2/health/live", InferencePath::live));
  EXPECT_TRUE(is("/v2/health/ready", InferencePath::ready));
  EXPECT_TRUE(is("/v2/models/a", InferencePath::metadata, "a"));
  EXPECT_TRUE(is("/v2/models/a/ready", InferencePath::model_ready, "a"));
  EXPECT_TRUE(is("/v2/models/a/infer", InferencePath::infer, "a"));
  EXPECT_TRUE(is("/v2/models/a/versions/2", InferencePath::metadata, "a", "2"));
  EXPECT_TRUE(is("/v2/models/a/versions/2/ready", InferencePath::model_ready, "a", "2"));
  EXPECT_TRUE(is("/v2/models/a/versions/2/infer", InferencePath::infer, "a", "2"));
  EXPECT_TRUE(is("/v2/repository/index", InferencePath::index));
  EXPECT_TRUE(is("/v2/repository/models/a/load", InferencePath::load, "a"));
  EXPECT_TRUE(is("/v2/repository/models/a/unload", InferencePath::unload, "a"));
  EXPECT_STREQ(parse_inference_path("/v2/models/a/infer")->methods(), "POST, OPTIONS");
  EXPECT_STREQ(parse_inference_path("/v2/models/a")->methods(), "GET, HEAD, OPTIONS");
  for (const char* path : {"",
                           "/",
                           "v2",
                           "/v3",
                           "/v2/",
                           "/v2x",
                           "/v2/health",
                           "/v2/health/x",
                           "/v2/models",
                           "/v2/models/",
                           "/v2/models//infer",
                           "/v2/models/a/",
                           "/v2/models/a/x",
                           "/v2/models/a/infer/",
                           "/v2/models/a/versions",
                           "/v2/models/a/versions/",
                           "/v2/models/a/versions//infer",
                           "/v2/models/a/versions/2/x",
                           "/v2/repository",
                           "/v2/repository/models/a",
                           "/v2/repository/models//load"})
    EXPECT_EQ(parse_inference_path(path), std::nullopt) << path;
}

// Models and answers
// -----------------------------------------------------------------------------------------

class InferenceModels : public testing::Test {
 protected:
  void save(const std::string& name, const std::string& version, std::uint64_t seed) {
    std::filesystem::create_directories(dir_ / name / version);
    save_small_model(dir_ / name / version / "model.safetensors", seed);
  }
  ModelsOptions options(std::size_t versions = 1) const {
    return {.folder = dir_.path(), .versions = versions, .max_batch = 2, .threads = 1};
  }
  Models::Say say() {
    return [this](const std::string& line) { said_.push_back(line); };
  }
  static std::vector<std::string> answering(const Models& models) {
    std::vector<std::string> all;
    for (const Models::Listed& one : models.list()) {
      if (one.model) all.push_back(one.name + " " + std::to_string(one.version));
    }
    return all;
  }
  using Names = std::vector<std::string>;

  const test::TempDir dir_;
  Metrics metrics_;
  std::vector<std::string> said_;
};

TEST_F(InferenceModels, TheNewestVersionsAnswer) {
  for (const char* version : {"2", "10", "9"}) save("a", version, 1);
  save("b", "1", 2);
  std::filesystem::create_directories(dir_ / "a" / "x11");
  std::filesystem::create_directories(dir_ / "a" / "012");
  std::filesystem::create_directories(dir_ / "no model");
  const Models one(options(), metrics_, say());
  EXPECT_EQ(answering(one), (Names{"a 10", "b 1"}));
  EXPECT_EQ(one.find("a")->version, 10);
  EXPECT_EQ(one.find("a", "9"), nullptr);
  EXPECT_EQ(one.standard(), nullptr);
  const Models two(options(2), metrics_, say());
  EXPECT_EQ(answering(two), (Names{"a 9", "a 10", "b 1"}));
  EXPECT_EQ(two.find("a", "9")->version, 9);
  EXPECT_EQ(two.find("a", "09"), nullptr);
  EXPECT_EQ(two.find("c"), nullptr);
  EXPECT_EQ(metrics_.of_model("a").version, 10);
  EXPECT_TRUE(said_.empty());
}

TEST_F(InferenceModels, ComeAndGoWithTheirFolders) {
  save("a", "1", 1);
  Models models(options(), metrics_, say());
  const auto first = models.find("a");
  save("a", "2", 2);
  save("b", "1", 3);
  models.refresh(false);
  EXPECT_EQ(answering(models), (Names{"a 2", "b 1"}));
  EXPECT_EQ(said_.size(), 3u);                               // two are loaded, one is retired
  EXPECT_EQ(first->predictor.info().images, test::kDigits);  // it lives as long as somebody holds it
  std::filesystem::remove_all(dir_ / "a" / "2");
  std::filesystem::remove_all(dir_ / "b");
  models.refresh(false);
  EXPECT_EQ(answering(models), (Names{"a 1"}));
  const auto again = models.find("a");
  models.refresh(false);
  models.refresh(true);
  EXPECT_EQ(models.find("a"), again);  // what has not changed is not loaded again
  save("a", "1", 7);
  models.refresh(false);
  EXPECT_NE(models.find("a"), again);
}

TEST_F(InferenceModels, ADamagedVersionChangesNothing) {
  save("a", "1", 1);
  Models models(options(), metrics_, say());
  const auto before = models.find("a");
  std::filesystem::create_directories(dir_ / "a" / "2");
  test::write_file(dir_ / "a" / "2" / "model.safetensors", "damaged");
  for (int i = 0; i < 3; ++i) models.refresh(false);
  EXPECT_EQ(models.find("a"), before);
  ASSERT_EQ(said_.size(), 1u);  // not again until the file changes
  EXPECT_TRUE(test::names(said_[0], {"a", "version 2", "unchanged", "model.safetensors"}));
  EXPECT_EQ(metrics_.of_model("a").failed_loads, 1u);
  EXPECT_EQ(metrics_.failed_reloads, 1u);
  EXPECT_FALSE(models.not_ready());
  EXPECT_TRUE(test::has_line(model_index(models, "").text, {"UNAVAILABLE", "model.safetensors", "READY"}));
  test::write_file(dir_ / "a" / "1" / "model.safetensors", "damaged, too");
  models.refresh(false);
  EXPECT_EQ(models.find("a"), before);
  save("a", "2", 2);
  models.refresh(false);
  EXPECT_EQ(models.find("a")->version, 2);
}

TEST_F(InferenceModels, AreUnloadedAndLoadedByName) {
  save("a", "1", 1);
  Models models(options(), metrics_, say());
  models.unload("a");
  EXPECT_EQ(models.find("a"), nullptr);
  EXPECT_FALSE(models.not_ready());  // somebody wants it so
  models.refresh(true);
  EXPECT_EQ(models.find("a"), nullptr);
  EXPECT_EQ(no_model(models, "a", "").code, 503);
  models.load("a");
  EXPECT_NE(models.find("a"), nullptr);
  save("b", "3", 1);
  models.load("b");
  EXPECT_EQ(models.find("b")->version, 3);
  EXPECT_THROW(models.load("c"), UnknownModelError);
  EXPECT_THROW(models.load("../a"), UnknownModelError);
  EXPECT_THROW(models.unload("c"), UnknownModelError);
  const auto before = models.find("b");
  test::write_file(dir_ / "b" / "3" / "model.safetensors", "damaged");
  EXPECT_ERROR(ArgumentError, models.load("b"), "model.safetensors");
  EXPECT_EQ(models.find("b"), before);
}

TEST_F(InferenceModels, AGivenPathCountsItsLoads) {
  save("a", "1", 1);
  const std::filesystem::path path = dir_ / "a" / "1";
  Models models({.given = {{"digits", path}}, .max_batch = 2}, metrics_, say());
  EXPECT_EQ(models.standard(), models.find("digits", "1"));
  models.refresh(false);
  EXPECT_EQ(models.standard()->version, 1);
  models.refresh(true);
  EXPECT_EQ(models.standard(), models.find("digits", "2"));
  EXPECT_EQ(models.find("digits", "1"), nullptr);
  EXPECT_EQ(metrics_.model_generation, 2);
  models.unload("digits");
  models.load("digits");
  EXPECT_EQ(models.standard()->version, 3);
  EXPECT_ERROR(ArgumentError, Models({.given = {{"a b", path}}}, metrics_, say()), "name", "'a b'");
  EXPECT_ERROR(ArgumentError, Models({.given = {{"a", path}, {"a", path}}}, metrics_, say()),
               "two models 'a'");
  EXPECT_ERROR(ArgumentError, Models({.given = {{kUnnamed, path}, {kUnnamed, path}}}, metrics_, say()),
               "two models without a name; name each");
  EXPECT_ERROR(ArgumentError, Models({.folder = dir_ / "none"}, metrics_, say()), "--models", "none");
}

TEST_F(InferenceModels, AModelThatNeverLoadedIsNotReady) {
  std::filesystem::create_directories(dir_ / "a" / "1");
  const Models models(options(), metrics_, say());
  EXPECT_EQ(said_.size(), 1u);
  EXPECT_EQ(server_ready(models).code, 503);
  EXPECT_EQ(no_model(models, "a", "").code, 503);
  EXPECT_EQ(no_model(models, "b", "").code, 404);
}

TEST_F(InferenceModels, AFolderWithoutModelsSaysWhereTheyMustBe) {
  save_small_model(dir_ / "model.safetensors", 1);  // a run's folder, say, and no NAME/VERSION/
  std::filesystem::create_directories(dir_ / "checkpoints");
  const Models models(options(), metrics_, say());
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("NAME/VERSION/"), std::string::npos) << said_[0];
  EXPECT_EQ(models.names(), 0u);
}

TEST_F(InferenceModels, SayWhatTheyAre) {
  save("a", "1", 1);
  const Models models(options(), metrics_, say());
  const Json said = Json::parse(model_metadata(models, *models.find("a")).text);
  EXPECT_EQ(said["name"], "a");
  EXPECT_EQ(said["versions"], Json{"1"});
  EXPECT_EQ(said["inputs"],
            (Json::array({{{"name", "images"}, {"datatype", "UINT8"}, {"shape", {-1, 8, 8, 1}}}})));
  EXPECT_EQ(said["outputs"].size(), 3u);
  EXPECT_EQ(said["outputs"][1], (Json{{"name", "probabilities"}, {"datatype", "FP32"}, {"shape", {-1, 10}}}));
  EXPECT_EQ(said["outputs"][2], (Json{{"name", "classes"}, {"datatype", "INT64"}, {"shape", {-1}}}));
  EXPECT_EQ(said["parameters"]["classes"].size(), 10u);
  EXPECT_EQ(Json::parse(model_index(models, "{\"ready\": true}").text),
            (Json::array({{{"name", "a"}, {"version", "1"}, {"state", "READY"}, {"reason", ""}}})));
  EXPECT_THROW(model_index(models, "[]"), ArgumentError);
  EXPECT_THROW(model_index(models, "{\"ready\": 1}"), ArgumentError);
  EXPECT_EQ(no_model(models, "b", "").text, "{\"error\":\"there is no model 'b'; there is a\"}\n");
  EXPECT_EQ(no_model(models, "a", "7").code, 404);
  EXPECT_EQ(Json::parse(server_metadata().text)["name"], "athanor");
}

/// A job whose two images are answered.
std::unique_ptr<Job> answered(const Models& models) {
  auto all = std::make_unique<Job>();
  Job& job = *all;
  job.model = models.find("a");
  job.files.resize(2);
  for (const float first : {0.25f, 0.5f}) {
    Answer answer;
    answer.top = {{"3", 3, 0.75}};
    answer.logits.assign(10, 0);
    answer.probabilities.assign(10, 0);
    answer.logits[0] = first;
    answer.probabilities[3] = 0.75;
    answer.probabilities[1] = answer.probabilities[2] = 0.125;
    job.answers.push_back(std::move(answer));
  }
  return all;
}

TEST_F(InferenceModels, AnswerInJson) {
  save("a", "1", 1);
  const Models models(options(), metrics_, say());
  const std::unique_ptr<Job> held = answered(models);
  const Job& job = *held;
  InferenceRequest request{.id = "x"};
  for (const OutputKind& kind : outputs_of(LabelKind::classes)) request.outputs.push_back({&kind});
  request.outputs[1].classification = 2;
  const Reply reply = inference_reply(job, request);
  EXPECT_EQ(reply.code, 200);
  EXPECT_EQ(reply.json_bytes, std::nullopt);
  const Json said = Json::parse(reply.text);
  EXPECT_EQ(said["id"], "x");
  EXPECT_EQ(said["model_name"], "a");
  EXPECT_EQ(said["model_version"], "1");
  EXPECT_EQ(said["outputs"][0]["shape"], (Json{2, 10}));
  EXPECT_EQ(said["outputs"][0]["data"].size(), 20u);
  EXPECT_EQ(said["outputs"][0]["data"][10], 0.5);
  EXPECT_EQ(said["outputs"][1], (Json{{"name", "probabilities"},
                                      {"datatype", "BYTES"},
                                      {"shape", {2, 2}},
                                      {"data", {"0.75:3:3", "0.125:1:1", "0.75:3:3", "0.125:1:1"}}}));
  EXPECT_EQ(said["outputs"][2],
            (Json{{"name", "classes"}, {"datatype", "INT64"}, {"shape", {2}}, {"data", {3, 3}}}));
}

TEST_F(InferenceModels, AnswerInBinary) {
  save("a", "1", 1);
  const Models models(options(), metrics_, say());
  const std::unique_ptr<Job> held = answered(models);
  const Job& job = *held;
  InferenceRequest request;
  for (const OutputKind& kind : outputs_of(LabelKind::classes)) request.outputs.push_back({&kind, true});
  request.outputs[1].binary = false;
  request.outputs[0].classification = 1;
  const Reply reply = inference_reply(job, request);
  ASSERT_TRUE(reply.json_bytes);
  const Json said = Json::parse(reply.text.substr(0, *reply.json_bytes));
  EXPECT_FALSE(said.contains("id"));
  EXPECT_EQ(said["outputs"][0]["parameters"]["binary_data_size"], 23);
  EXPECT_EQ(said["outputs"][1]["data"].size(), 20u);
  EXPECT_EQ(said["outputs"][2]["parameters"]["binary_data_size"], 16);
  const std::string three("\3\0\0\0\0\0\0\0", 8);
  EXPECT_EQ(reply.text.substr(*reply.json_bytes), std::string("\x08\0\0\0"
                                                              "0.25:0:0",
                                                              12) +
                                                      std::string("\x07\0\0\0"
                                                                  "0.5:0:0",
                                                                  11) +
                                                      three + three);
}

TEST_F(InferenceModels, AnErrorOfOneImageIsThatOfTheRequest) {
  save("a", "1", 1);
  const Models models(options(), metrics_, say());
  const std::unique_ptr<Job> held = answered(models);
  Job& job = *held;
  const InferenceRequest request;
  job.answers[1] = {.error = "no picture"};
  EXPECT_EQ(inference_reply(job, request).code, 400);
  EXPECT_EQ(inference_reply(job, request).text, "{\"error\":\"images: 1: no picture\"}\n");
  job.answers[0] = {.error = "no memory", .is_fault = true};
  EXPECT_EQ(inference_reply(job, request).code, 500);
  job.answers[1] = {.error = "late", .is_late = true};
  EXPECT_EQ(inference_reply(job, request).code, 503);
}

TEST(ServeToken, IsShownOrNot) {
  const Token token("aB3-._~+/=");
  EXPECT_TRUE(token.allows("Bearer aB3-._~+/="));
  EXPECT_TRUE(token.allows("bearer aB3-._~+/="));
  for (const char* other : {"", "Bearer", "Bearer ", "aB3-._~+/=", "Basic aB3-._~+/=", "Bearer aB3-._~+/",
                            "Bearer aB3-._~+/==", "Bearer  aB3-._~+/="})
    EXPECT_FALSE(token.allows(other)) << other;
  EXPECT_TRUE(Token().allows(""));
  EXPECT_THROW(Token(""), ArgumentError);
  EXPECT_THROW(Token("a b"), ArgumentError);
  const test::TempDir dir;
  test::write_file(dir / "token", " \n abc\r\n");
  EXPECT_EQ(read_token((dir / "token").string()), "abc");
  EXPECT_ERROR(IoError, read_token((dir / "none").string()), "--token-file", "none");
}

}  // namespace athanor::serve::inference_test
