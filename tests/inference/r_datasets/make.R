# Makes the tables of this folder and expected.json, R's fits of them: Rscript tests/inference/r_datasets/make.R
# Fits read the tables as they are written, so that both sides see the same numbers.

library(survival)
library(sandwich)
library(splines)
folder <- "tests/inference/r_datasets"
packages <- c("AER", "HSAUR3", "KMsurv", "MASS", "carData", "lme4", "mlmRev", "nnet", "numDeriv", "palmerpenguins", "plm",
              "sandwich", "survival")
expected <- list(versions = c(list(R = paste(R.version$major, R.version$minor, sep = ".")),
                              sapply(packages, function(p) as.character(packageVersion(p)), simplify = FALSE)))

of <- function(package, name) {
  kept <- new.env()
  suppressWarnings(data(list = name, package = package, envir = kept))
  as.data.frame(if (exists(name, kept, inherits = FALSE)) kept[[name]] else getExportedValue(package, name))
}

# Writes the table, and reads it back with text as factors whose levels are sorted
store <- function(name, table) {
  file <- file.path(folder, paste0(name, ".csv"))
  write.csv(table, file, row.names = FALSE, quote = FALSE)
  read.csv(file, stringsAsFactors = TRUE)
}

# Names as fedgauss and patsy have them: "sexmale" is "sex[T.male]"
patsy_names <- function(names, levels) {
  of <- unlist(lapply(names(levels), function(v) setNames(paste0(v, "[T.", levels[[v]], "]"), paste0(v, levels[[v]]))))
  parts <- lapply(strsplit(names, ":", fixed = TRUE), function(p) ifelse(p %in% names(of), of[p], p))
  joined <- vapply(parts, paste, "", collapse = ":")
  sub("factor(", "C(", sub("(Intercept)", "Intercept", joined, fixed = TRUE), fixed = TRUE)
}

keep <- function(name, params, errors, levels = NULL, ...) {
  of <- patsy_names(names(params), levels)
  expected[[name]] <<- list(params = setNames(as.list(params), of), std_errors = setNames(as.list(errors), of), ...)
}

deal <- function(groups, sites) letters[(match(groups, unique(groups)) - 1) %% sites + 1]
root <- function(covariance) sqrt(diag(covariance))
exact <- glm.control(epsilon = 1e-15, maxit = 100)

# Gaussian with an interaction, HC0
d <- of("palmerpenguins", "penguins")
d <- store("penguins", na.omit(data.frame(site = d$island, mass = d$body_mass_g, flipper = d$flipper_length_mm,
                                           depth = d$bill_depth_mm, sex = d$sex)))
m <- lm(mass ~ flipper * sex + depth, d)
keep("penguins", coef(m), root(vcovHC(m, "HC0")), m$xlevels, log_likelihood = as.numeric(logLik(m)), deviance = deviance(m))

# Gaussian with weights; counties are dealt to four sites
d <- of("AER", "CASchools")
d <- store("caschools", data.frame(site = deal(d$county, 4), score = (d$read + d$math) / 2, students = d$students,
                                    ratio = signif(d$students / d$teachers, 10), english = d$english, lunch = d$lunch))
m <- lm(score ~ ratio + english + lunch, d, weights = students)
keep("caschools", coef(m), root(vcov(m)), m$xlevels, deviance = deviance(m))

# Binomial with a natural spline and a column of ones and zeros; rows are dealt to five sites
d <- of("carData", "Mroz")
d <- store("mroz", data.frame(site = deal(seq_len(nrow(d)), 5), lfp = as.integer(d$lfp == "yes"), k5 = d$k5,
                               k618 = d$k618, age = d$age, wc = d$wc, hc = d$hc, lwg = d$lwg, inc = d$inc))
m <- glm(lfp ~ k5 + k618 + wc + hc + lwg + inc + ns(age, knots = c(38, 44, 50), Boundary.knots = c(32, 57)),
         binomial, d, control = exact)
# Coefficients of fedgauss's spline are differences of the predictor between its knots and the lower bound.
basis <- predict(ns(d$age, knots = c(38, 44, 50), Boundary.knots = c(32, 57)), c(32, 38, 44, 50, 57))
turn <- diag(11)
turn[8:11, 8:11] <- sweep(basis[-1, ], 2, basis[1, ])
turn[1, 8:11] <- basis[1, ]
keep("mroz", setNames(drop(turn %*% coef(m)), c(names(coef(m))[1:7], paste0("ns(age, knots=[38, 44, 50], bounds=[32, 57])[", 0:3, "]"))),
     root(turn %*% vcovHC(m, "HC0") %*% t(turn)), m$xlevels, log_likelihood = as.numeric(logLik(m)), deviance = deviance(m))

# Binomial with trials and a site effect: the temperature of the room
d <- of("MASS", "snails")
d <- store("snails", data.frame(site = paste0("t", d$Temp), deaths = d$Deaths, n = d$N, species = d$Species,
                                 exposure = d$Exposure, humidity = d$Rel.Hum))
m <- glm(cbind(deaths, n - deaths) ~ species * exposure + humidity + site, binomial("cloglog"), d, control = exact)
keep("snails", coef(m), root(vcov(m)), m$xlevels, log_likelihood = as.numeric(logLik(m)), deviance = deviance(m))

# Poisson with an exposure, HC0; Luxembourg with Belgium
d <- of("mlmRev", "Mmmec")
nation <- gsub(".", "", d$nation, fixed = TRUE)
d <- store("mmmec", data.frame(site = ifelse(nation == "Luxembourg", "Belgium", nation), deaths = d$deaths,
                                expected = d$expected, uvb = d$uvb))
m <- glm(deaths ~ uvb + offset(log(expected)), poisson, d, control = exact)
keep("mmmec", coef(m), root(vcovHC(m, "HC0")), m$xlevels, log_likelihood = as.numeric(logLik(m)), deviance = deviance(m))

# Poisson with errors by cluster: broods, each of one year
d <- of("lme4", "grouseticks")
d <- store("grouseticks", data.frame(site = paste0("y", d$YEAR), ticks = d$TICKS, brood = d$BROOD, height = d$HEIGHT))
m <- glm(ticks ~ height, poisson, d, control = exact)
keep("grouseticks", coef(m), root(vcovCL(m, ~brood, type = "HC1")), m$xlevels, log_likelihood = as.numeric(logLik(m)),
     deviance = deviance(m))

# Gamma with a log link
d <- of("plm", "RiceFarms")
d <- store("ricefarms", data.frame(site = d$region, output = d$goutput, size = d$size, seed = d$seed,
                                    labour = d$totlabor, varieties = d$varieties))
m <- glm(output ~ log(size) + log(seed) + log(labour) + varieties, Gamma("log"), d, control = exact)
keep("ricefarms", coef(m), root(vcov(m)), m$xlevels, deviance = deviance(m))

# Negative binomial; the last parameter is log(alpha) = -log(theta). glm.nb's errors take theta as known, and theta is
# iterated to 1e-4 only: here both are from the likelihood of all parameters
d <- of("HSAUR3", "schooldays")
d <- store("schooldays", data.frame(site = d$school, absent = d$absent, race = d$race, gender = d$gender,
                                     learner = d$learner))
m <- MASS::glm.nb(absent ~ race + gender + learner, d, control = glm.control(epsilon = 1e-15, maxit = 500))
theta <- as.numeric(MASS::theta.ml(d$absent, fitted(m), limit = 100, eps = 1e-12))
params <- c(coef(m), "log(alpha)" = -log(theta))
minus <- function(p) -sum(dnbinom(d$absent, size = exp(-p[5]), mu = exp(drop(model.matrix(m) %*% p[1:4])), log = TRUE))
keep("schooldays", params, root(solve(numDeriv::hessian(minus, params))), m$xlevels,
     log_likelihood = as.numeric(logLik(m)))

# Multinomial; nnet's errors are from the Hessian
d <- of("carData", "Womenlf")
d <- store("womenlf", data.frame(site = d$region, partic = d$partic, hincome = d$hincome, children = d$children))
m <- nnet::multinom(partic ~ I(hincome / 10) + children, d, reltol = 1e-20, abstol = 0, maxit = 10000, trace = FALSE,
                    Hess = TRUE)
unit <- c(1, 0.1, 1) # of income, which is scaled for the optimiser
names <- patsy_names(sub("I(hincome/10)", "hincome", colnames(coef(m)), fixed = TRUE), m$xlevels)
keep("womenlf", setNames(as.numeric(t(coef(m))) * unit, paste0(rep(rownames(coef(m)), each = 3), ": ", names)),
     root(solve(m$Hessian)) * unit, log_likelihood = as.numeric(logLik(m)), deviance = deviance(m))

# Cox with Efron's ties, by hospital
d <- of("KMsurv", "bmt")
d <- store("bmt", data.frame(site = c("ohio", "alferd", "stvincent", "hahnemann")[d$z9], days = d$t2, event = d$d3,
                              group = paste0("g", d$group), fab = d$z8, age = d$z1 - 28, donor = d$z2 - 28))
strict <- coxph.control(eps = 1e-14, toler.chol = 1e-15, iter.max = 100)
m <- coxph(Surv(days, event) ~ group + fab + age * donor + strata(site), d, ties = "efron", control = strict)
keep("bmt", coef(m), root(vcov(m)), m$xlevels, log_likelihood = m$loglik[2])

# Cox with Breslow's ties and robust errors; deaths only, rows are dealt to five sites
d <- of("survival", "colon")
d <- na.omit(d[d$etype == 2, ])
d <- store("colon", data.frame(site = deal(seq_len(nrow(d)), 5), days = d$time, died = d$status,
                                rx = gsub("+", "_", d$rx, fixed = TRUE), sex = d$sex, age = d$age,
                                obstruct = d$obstruct, perfor = d$perfor, adhere = d$adhere, nodes = d$nodes,
                                differ = d$differ, extent = d$extent, surg = d$surg))
m <- coxph(Surv(days, died) ~ rx + sex + age + obstruct + perfor + adhere + nodes + factor(differ) + factor(extent) +
             surg + strata(site), d, ties = "breslow", robust = TRUE, control = strict)
keep("colon", coef(m), root(m$var), m$xlevels, log_likelihood = m$loglik[2])

writeLines(jsonlite::toJSON(expected, auto_unbox = TRUE, digits = NA, pretty = TRUE), file.path(folder, "expected.json"))
