#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"
#include "trainer/inference/evaluation.h"
#include "trainer/report/detail/record.h"

namespace athanor::report {

/// {"images", "of", "top1", "names": [...], "cells": [[actual, predicted, images], ...], "mistakes":
/// [{"sample", "file", "actual", "predicted", "probability", "loss", "picture"}]}, where pictures are URLs
/// that hold their bytes. `of`: how many images there are; others may have looked at the rest.
Json json_of(const Evaluation& evaluation, const Dataset& data, std::int64_t of);

/// The section of the page: the confusion matrix, or of many classes the pairs that are confused most often,
/// and the worst mistakes as pictures. Empty where the JSON is not of this form.
std::string mistakes_section(const Json& evaluation);

}  // namespace athanor::report
