// SPDX-License-Identifier: Apache-2.0
// Functions that use plumb.hpp compiled with -fno-exceptions, in a program whose other files have
// exceptions.
#ifndef PLUMB_TESTS_CAPI_HPP_WITHOUT_EXCEPTIONS_H_
#define PLUMB_TESTS_CAPI_HPP_WITHOUT_EXCEPTIONS_H_

#include <string>

// Trains and samples. Returns "ok" or the error.
std::string TrainWithoutExceptions();
// Returns the message of an error that a call returned.
std::string FailWithoutExceptions();
// Calls value() on an error, which aborts.
void AbortWithoutExceptions();

#endif  // PLUMB_TESTS_CAPI_HPP_WITHOUT_EXCEPTIONS_H_
